#!/bin/sh
set -eu
cd "$(dirname "$0")"
home=../../../target/clients/python
export PYTHONDONTWRITEBYTECODE=1
if [ -n "${LOCK_QUICK:-}" ]; then
    exec "$home/usual/bin/python" clients.py redis_py redis_py_sentinel
fi
"$home/usual/bin/python" clients.py redis_py redis_py_sentinel redis_py_asyncio pottery_redlock redlock_py python_redis_lock raw
"$home/aioredlock/bin/python" clients.py aioredlock_manager
"$home/celery/bin/python" celery_queues.py
exec "$home/jobs/bin/python" job_systems.py
