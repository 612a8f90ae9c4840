"""Stands before the real debugpy where a template says `debugger: false`: ipykernel then starts without it."""

raise ImportError("debugpy is off in this template")
