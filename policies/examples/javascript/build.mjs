// Run by `lockwarden policy build`, with the folder of the contract, the world, which is called as the file that is built,
// and the file to write.
import { writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const [witPath, worldName, out] = process.argv.slice(2);
const disableFeatures = ["stdio", "random", "clocks", "http", "fetch-event"];
const { component } = await componentize({ sourcePath: `${worldName}.js`, witPath, worldName, disableFeatures });
await writeFile(out, component);
