"""What every test can rely on."""

import signal

# A shell starts a background job with SIGINT ignored, and children inherit that: the tests that interrupt a `dwsweep`
# of their own would wait for it in vain. A handler of this process is reset to the default in its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
