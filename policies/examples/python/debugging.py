"""What `lockwarden policy build --debug` builds in place of policy.py: `lockwarden policy test` and `run` show what it
prints, and the exceptions that it raises."""

import sys

import policy
from componentize_py_types import Err
from wit_world.imports import output


class _Said:
    def write(self, text: str) -> int:
        output.say(text.encode())
        return len(text)

    def flush(self) -> None:
        pass


sys.stdout = sys.stderr = _Said()


def _heard(answer, asked):
    try:
        return answer(asked)
    except Err:
        raise
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        # Without the lines of the source, which are in files.
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            print(f"  {code.co_filename}:{trace.tb_lineno} in {code.co_name}")
            trace = trace.tb_next
        raise


class WitWorld(policy.WitWorld):
    def configure(self, given):
        return _heard(super().configure, given)

    def decide(self, request):
        return _heard(super().decide, request)
