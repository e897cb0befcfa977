# Needs Go and, for the tests, Node.js with npm; make race needs a C compiler too.
#
#	make test PKGS=./pkg/...	these packages only; so for race and bench
#	make lint TAGS=fdb	the files of that build too

PKGS = ./...
RACE_PKGS = $(PKGS)
TAGS =
CGO = 0
VERSION = $$(git describe --tags --always --dirty 2>/dev/null || echo unknown)

# For one package: ends a test that hangs, with every goroutine's stack.
TEST_TIMEOUT = 10m
RACE_TIMEOUT = 20m
BENCH_TIMEOUT = 60m

# For one fuzz test.
FUZZTIME = 10s

# For one benchmark on FoundationDB.
BENCHTIME = 10s

# How long the cluster of make fire is under fire, and the seed of what happens to it.
FIRE = 90s
SEED = 1

# How many seeds a soak runs, or for how long, and of which test. Others that take seeds are TestRandom in
# pkg/docstore and replicator/jobs, TestMetamorphic in pkg/kv/pebblekv, and
# TestCheckpointsClaimNothingThatIsNotThere in replicator/worker.
SEEDS = 1h
SOAK = TestSimulation
SOAK_PKGS = ./fdbjobs

PEERS = pkg/couch/couchtest

.PHONY: help run demo build build-fdb test test-fdb fire race fuzz soak lint bench bench-fdb clean node

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-9s %s\n", $$1, $$2 }' Makefile

run: ## start a node on http://127.0.0.1:5984, with its store in ./data
	go run -tags '$(TAGS)' ./cmd/settee serve

demo: ## show a replication of 10,000 documents, on a node of its own that is removed afterwards
	go run -tags '$(TAGS)' ./cmd/settee demo

build: ## build bin/settee
	CGO_ENABLED=$(CGO) go build -trimpath -tags '$(TAGS)' -ldflags "-X main.version=$(VERSION)" -o bin/settee ./cmd/settee

build-fdb: ## build bin/settee with the FoundationDB engine, which needs FoundationDB's client package
	@$(MAKE) build TAGS=fdb CGO=1

test: node $(PEERS)/node_modules/.package-lock.json ## run the tests, those with a CouchDB too where one is installed
	go tool withservers -couchdb go test -tags '$(TAGS)' -timeout $(TEST_TIMEOUT) $(PKGS)

test-fdb: node $(PEERS)/node_modules/.package-lock.json ## run the tests on a FoundationDB that is started for them
	scripts/test-fdb -timeout $(TEST_TIMEOUT) $(PKGS)

fire: ## kill, freeze and cut off the nodes and servers of a cluster for FIRE, which takes a minute more than that
	SETTEE_REQUIRE=fdb,couchdb go test -tags 'fdb fire' -count=1 -timeout 0 -v ./internal/fire -fire.time $(FIRE) -fire.seed $(SEED)

race: node $(PEERS)/node_modules/.package-lock.json ## run the tests under the race detector
	go tool withservers -couchdb go test -tags '$(TAGS)' -race -timeout $(RACE_TIMEOUT) $(RACE_PKGS)

fuzz: ## run every fuzz test for FUZZTIME
	FUZZTIME=$(FUZZTIME) scripts/fuzz

soak: ## run the simulation of the job layer for SEEDS: a number of seeds, or a time
	SETTEE_SEEDS=$(SEEDS) go test -tags '$(TAGS)' -count=1 -timeout 0 -v -run '^$(SOAK)$$' $(SOAK_PKGS) 2>&1 | \
		awk '/^=== |^ *--- PASS/ { next } /^ok/ { ok = 1 } /^FAIL/ { failed = 1 } { print } END { exit failed || !ok }'

lint: ## check the format, the imports and the code
	@files=$$(gofmt -l .) || exit 1; \
	if [ -n "$$files" ]; then printf 'gofmt would change:\n%s\n' "$$files" >&2; exit 1; fi
	go tool -modfile=scripts/tools.mod golangci-lint run --build-tags '$(TAGS)'

bench: ## run the benchmarks
	go test -tags '$(TAGS)' -run '^$$' -bench . -timeout $(BENCH_TIMEOUT) $(PKGS)
	SETTEE_MANY_DOCUMENTS=100000 go test -tags '$(TAGS)' -run TestManyDocuments -v -timeout $(BENCH_TIMEOUT) ./replicator/scheduler

bench-fdb: ## compare commits, jobs and replications, on a FoundationDB that is started for them
	BENCHTIME=$(BENCHTIME) scripts/bench-fdb

clean: ## remove what build and test installed; ./data stays
	rm -rf bin $(PEERS)/node_modules

node:
	@for tool in node npm; do \
		command -v $$tool >/dev/null || { \
			echo "$$tool is missing: the tests talk to a server that runs on Node.js (on Debian: apt-get install nodejs npm)" >&2; \
			exit 1; \
		}; \
	done

# npm writes this file when everything else is in place.
$(PEERS)/node_modules/.package-lock.json: $(PEERS)/package.json $(PEERS)/package-lock.json $(PEERS)/.npmrc
	npm ci --prefix $(PEERS)
	touch $@
