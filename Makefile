# Shortcuts for scripts/, which work without make. Arguments: make demo ARGS="--seed 1"
.DEFAULT_GOAL := help
.PHONY: help demo test check test-peers

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## set up, train the bundled model on additions, print what was gained
	@bash scripts/demo $(ARGS)

test: ## set up, run every check, test and example
	@bash scripts/test $(ARGS)

check: ## lint, format, types and the tests of the project's shape
	@bash scripts/check

test-peers: ## suites that need another project's package (none yet)
	@bash scripts/test-peers
