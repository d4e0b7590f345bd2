"""The command ``protodepth``, as a module."""

import os
import sys


def main(argv: list[str] | None = None) -> int:
    try:
        from protodepth.cli.main import run

        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing is said at the very end either
        return 0
    except KeyboardInterrupt:  # in the moment before a command runs
        print("protodepth: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
