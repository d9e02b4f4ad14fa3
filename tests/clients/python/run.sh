#!/bin/sh
set -eu
cd "$(dirname "$0")"
home=../../../target/clients/python
export PYTHONDONTWRITEBYTECODE=1
found=redis_py_sentinel
if [ -n "${LOCK_CLUSTER:-}" ]; then found=redis_py_cluster; fi
if [ -n "${LOCK_QUICK:-}" ]; then
    exec "$home/usual/bin/python" clients.py redis_py "$found"
fi
"$home/usual/bin/python" clients.py redis_py "$found" redis_py_asyncio pottery_redlock redlock_py python_redis_lock raw
"$home/aioredlock/bin/python" clients.py aioredlock_manager
"$home/celery/bin/python" celery_queues.py
exec "$home/jobs/bin/python" job_systems.py
