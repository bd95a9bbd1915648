"""What every test can rely on."""

import atexit
import os
import shutil
import signal
import tempfile

import pytest

# A shell starts a background job with SIGINT ignored, and children inherit that: the tests that interrupt a `dwsweep`
# of their own would wait for it in vain. A handler of this process is reset to the default in its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Most tests of the trainer compile the same few programs; JAX reads this when it is first imported.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.mkdtemp(prefix="dwsweep-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"


@pytest.fixture(autouse=True)
def environment_as_it_was():
    """What a command puts into the environment for JAX and its workers must not reach the next test."""
    before = dict(os.environ)
    yield
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)
