"""`python -m locore.bench.fidelity`."""

from locore.bench.fidelity.options import main

raise SystemExit(main())
