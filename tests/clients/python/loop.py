"""An event loop on a thread of its own, so that checks that block can ask coroutines: parties on several
threads become tasks of one loop, which is how an asyncio application contends."""

import asyncio
import threading

_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


def wait(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, _loop).result()
