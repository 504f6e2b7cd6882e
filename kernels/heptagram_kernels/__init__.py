"""The K7 step's device operations: argument layout, packed masks, verification, graphs, workspaces."""
