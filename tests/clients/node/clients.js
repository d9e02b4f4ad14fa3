'use strict';
// Runs the clients that are named, each a module of this folder that exports a class, against the server that the
// environment names, and prints a JSON line a check. Start at `checks.js`.

const checks = require('./checks');

async function main(names) {
    const server = new checks.Server();
    for (const name of names) {
        const Client = require(`./${name}`);
        const client = new Client(server);
        await client.open();
        await checks.run(client, server, `${process.env.LOCK_PREFIX}${name}:`);
        await client.close();
    }
    server.close();
}

main(process.argv.slice(2));
