# Needs Go and, for the tests, Node.js with npm; make race also needs a C compiler.
#
#	make test PKGS=./pkg/...	only these packages; also for race and bench
#	make lint TAGS=fdb	the folders with files of that build

PKGS = ./...
TAGS =
CGO = $(if $(filter fdb,$(TAGS)),1,0)
BIN = bin/settee
LINT = $(CURDIR)/bin/golangci-lint
LDFLAGS =
VERSION = $$(scripts/version)

# Tests wait much of the time, so more packages run side by side than there are processors, and twelve
# tests of each. make lint vets them.
TEST_FLAGS = -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) + 3)) -parallel 12

# The environment of tests, and of the programs that build them. GOGC makes a third of the usual
# garbage collections, and needs about twice the memory.
TEST_ENV = GOGC=300 $(BUILD_ENV)

# The environment of what compiles packages. Like the program, tests have C code only if the build
# needs it, since then they take longer to compile and to link, and they have no information for
# debuggers: it takes a tenth of the time. What is compiled is the same in each clone, for the paths of
# files are left out. make lint needs the same compiled packages.
BUILD_ENV = GOFLAGS="$$(go env GOFLAGS) -trimpath -gcflags=all=-dwarf=false -ldflags=-w" CGO_ENABLED=$(CGO)

# The time limit of one package. A test that hangs fails with the stacks of all goroutines.
TEST_TIMEOUT = 10m
RACE_TIMEOUT = 20m
BENCH_TIMEOUT = 60m

# The time of one fuzz test.
FUZZTIME = 10s

# The time of one benchmark on FoundationDB.
BENCHTIME = 10s

# The flags of make bench-couchdb, make bench-peers, make load, make bench-budget, make bench-fleet, make bench-mirror and make
# stress: -help lists them.
BENCH_FLAGS =
PEERS_FLAGS =
LOAD_FLAGS =
FLEET_FLAGS =
MIRROR_FLAGS =
BUDGET_FLAGS =
STRESS_FLAGS =

# How long make fire injects faults, the number of its continuous jobs, and the seed of the faults.
FIRE = 90s
FIRE_JOBS = 220
SEED = 1

# The number of continuous jobs of make rolling.
ROLLING = 60

# The seed of make nightly.
NIGHT = $(if $(filter file,$(origin SEED)),$(shell date +%Y%m%d),$(SEED))

# The number of seeds of a soak, or its duration, and its test. Other tests with seeds are
# TestRandom in pkg/docstore and replicator/jobs, TestRandomUpdates in the former, TestRandomMirrors,
# TestNamesRandom and TestParkingSimulation in the latter, and TestCheckpointsClaimNothingThatIsNotThere
# in replicator/worker.
SEEDS = 1h
SOAK = TestSimulation
SOAK_PKGS = ./fdbjobs

# The folders with npm packages: what tests need, the JavaScript engine, and the pages of /_utils/.
DASHBOARD = frontend/internal/dashboard
NPM = internal/browsertest pkg/couch/couchtest pkg/script $(DASHBOARD)
INSTALLED = $(NPM:%=%/node_modules/.package-lock.json)

.PHONY: help run demo build build-fdb packages tarballs release test-rules test-docs test-pages test-scripts test-packages manifests monitoring quick test engine-packages test-fdb fire rolling race stress fuzz soak nightly nightly-fuzz nightly-soak nightly-rounds nightly-stress nightly-fire lint bench bench-couchdb bench-fdb bench-peers benchmarks bench-fleet bench-mirror bench-budget load dashboard pictures clean node

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' Makefile

run: ## start a node on http://127.0.0.1:5984, with its store in ./data
	go run -tags '$(TAGS)' ./cmd/settee serve

demo: ## show a replication of 10,000 documents on a temporary node
	go run -tags '$(TAGS)' ./cmd/settee demo

build: ## build bin/settee
	CGO_ENABLED=$(CGO) go build -trimpath -tags '$(TAGS)' -ldflags "-X main.version=$(VERSION) $(LDFLAGS)" -o $(BIN) ./cmd/settee

build-fdb: ## build bin/settee with the FoundationDB engine (needs FoundationDB's client package)
	@$(MAKE) build TAGS=fdb

packages: ## build .deb and .rpm packages in dist, with the FoundationDB engine if its client package is installed
	@scripts/packages/build dist

tarballs: ## build tarballs in dist, for Linux, macOS, FreeBSD and Windows, with checksums and lists of their parts
	@scripts/packages/tarballs dist

release: ## build all files of a release of this commit in dist, with their checksums
	@scripts/packages/release dist

test-scripts: ## run the tests of the measuring programs (TAGS=packages: and those of test-packages)
	$(TEST_ENV) go -C scripts test -tags '$(TAGS)' $(TEST_FLAGS) -timeout $(TEST_TIMEOUT) ./...

test-packages: ## run the tests of packages and of the other operating systems, with packages for this machine
	$(TEST_ENV) go -C scripts test -tags packages -vet=off -timeout $(TEST_TIMEOUT) ./packages

manifests: ## check the files for Docker Compose and Kubernetes
	$(TEST_ENV) go -C scripts/manifests test -vet=off ./...

monitoring: ## check the alert rules, the scrape configuration and the dashboard in scripts/monitoring
	$(TEST_ENV) go -C scripts/monitoring test -vet=off ./...

quick: ## run the tests that are quick and start no other program
	$(TEST_ENV) go test -short -tags '$(TAGS)' $(TEST_FLAGS) -timeout $(TEST_TIMEOUT) $(PKGS)

test: node $(INSTALLED) ## run the tests, with a CouchDB if it is installed
	$(TEST_ENV) go tool withservers -couchdb -pouchdb go test -tags '$(TAGS)' $(TEST_FLAGS) -skip '$(IN_BROWSER)' -timeout $(TEST_TIMEOUT) $(ORDERED)
	@$(if $(filter ./...,$(PKGS)),echo '$(LEFT_OUT)')

LEFT_OUT = left out: the pages in a Chromium (make test-pages), the commands of the documents (make test-docs), FoundationDB (make test-fdb), races (make race)

# The packages that test the repository: the commands of its documents, and the servers that tests start.
REPOSITORY = ./internal/papers ./internal/servers ./internal/withservers

test-rules: ## check that quick tests run the functions that decide the rules of docs/rules.md
	@mkdir -p bin
	$(TEST_ENV) go test -short $(TEST_FLAGS) -timeout $(TEST_TIMEOUT) -coverprofile=bin/quick.profile $(RULED)
	$(TEST_ENV) go test $(TEST_FLAGS) -run '^TestRulesAreQuick$$' ./internal/papers -quick '$(CURDIR)/bin/quick.profile'

# The packages of these functions.
RULED = $$(sed -n 's|^.* in `\(.*\)/[^/]*\.go` .$$|./\1|p' docs/rules.md | sort -u)

test-docs: node $(INSTALLED) ## run the commands of the documents, and test the servers that tests start
	$(TEST_ENV) go tool withservers -couchdb go test -tags '$(TAGS)' $(TEST_FLAGS) -timeout $(TEST_TIMEOUT) $(REPOSITORY)

# The packages whose tests take longest. They begin first, so that no processor is idle at the end.
LONGEST = ./cmd/settee ./replicator/scheduler ./replicator/worker ./frontend ./fdbjobs ./frontend/internal/databases ./pkg/docstore ./replicator/jobs ./pkg/couch

# PKGS in this order, without those that WITHOUT takes out.
ORDERED = $$(all=$$(go list $(PKGS) $(WITHOUT)); longest=$$(go list $(LONGEST)); \
	echo "$$longest" | grep -xF "$$all"; echo "$$all" | grep -vxF "$$longest")
test: WITHOUT = $(if $(filter ./...,$(PKGS)),| grep -vxF "$$(go list $(REPOSITORY))")

# The tests that look at pages in a Chromium, which takes a fifth of the time of all tests. If it is empty, make test runs
# them, too.
IN_BROWSER = ^Test(Browser|Dashboard|Fauxton)

test-pages: node $(INSTALLED) ## run the tests of the pages in a Chromium
	$(TEST_ENV) go tool withservers -couchdb -chromium go test -tags '$(TAGS)' $(TEST_FLAGS) -run '$(IN_BROWSER)' -timeout $(TEST_TIMEOUT) $(if $(filter ./...,$(PKGS)),./cmd/settee ./internal/browsertest,$(PKGS))

# The packages whose tests use a cluster of FoundationDB or its client library.
ON_CLUSTER = git grep -lE 'enginetest\.(Each|OnCluster|ClusterOr)\(|kvtest\.Cluster|^//go:build fdb$$$$' -- '*_test.go' ':!scripts'
ENGINE_PKGS = $$(go list -tags fdb $(PKGS) | grep -xF "$$($(ON_CLUSTER) | $(FOLDERS) | xargs go list -tags fdb)" | tr '\n' ' ')

engine-packages: # prints them
	@echo $(ENGINE_PKGS)

# These tests wait for one FoundationDB, which needs a processor for that. With more of them side by side some wait too long.
test-fdb: TEST_FLAGS = -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -parallel 8

test-fdb: node $(INSTALLED) ## run the tests that use a store on a temporary FoundationDB
	$(TEST_ENV) scripts/test-fdb $(TEST_FLAGS) -timeout $(TEST_TIMEOUT) $(ENGINE_PKGS)

fire: ## kill, freeze and cut off the nodes and servers of a cluster for FIRE (takes a minute longer)
	SETTEE_REQUIRE=fdb,couchdb $(TEST_ENV) go test -tags 'fdb fire' $(TEST_FLAGS) -count=1 -timeout 0 -v ./internal/fire -skip TestRolling -fire.time $(FIRE) -fire.jobs $(FIRE_JOBS) -fire.seed $(SEED)

rolling: ## upgrade a cluster node by node, back and forward, under the load of make fire with ROLLING jobs
	SETTEE_REQUIRE=fdb,couchdb $(TEST_ENV) go test -tags 'fdb fire' $(TEST_FLAGS) -count=1 -timeout 0 -v ./internal/fire -run TestRolling -fire.jobs $(ROLLING) -fire.seed $(SEED)

test-fdb fire rolling race: CGO = 1

race: node $(INSTALLED) ## run the tests under the race detector
	$(TEST_ENV) go tool withservers -couchdb -pouchdb -chromium go test -tags '$(TAGS)' $(TEST_FLAGS) -race -timeout $(RACE_TIMEOUT) $(ORDERED)

stress: node $(INSTALLED) ## run each test many times with few processors, until one fails (PKGS=./fdbjobs STRESS_FLAGS="-n 20")
	go -C scripts build -o '$(CURDIR)/bin/' ./stress
	go tool withservers $(if $(filter fdb,$(TAGS)),-fdb) -couchdb -pouchdb -chromium bin/stress -tags '$(TAGS)' $(STRESS_FLAGS) $(PKGS)

fuzz: ## run every fuzz test for FUZZTIME
	FUZZTIME=$(FUZZTIME) scripts/fuzz

soak: ## run the simulation of the job layer for SEEDS, a number of seeds or a duration
	SETTEE_SEEDS=$(SEEDS) $(TEST_ENV) go test -tags '$(TAGS)' $(TEST_FLAGS) -count=1 -timeout 0 -v -run '^$(SOAK)$$' $(SOAK_PKGS) 2>&1 | \
		awk '/^=== |^ *--- PASS/ { next } /^ok/ { ok = 1 } /^FAIL/ { failed = 1 } { print } END { exit failed || !ok }'

# The files of the build that TAGS names, and the folders of files.
TAGGED = git grep -lE '^//go:build .*\b('$$(echo '$(TAGS)' | tr ' ' '|')')\b' --
FOLDERS = xargs -n 1 dirname | sort -u | sed 's|^|./|'

# The tests that run all their cases only here.
ROUNDS = git grep -lE 'seeds\.Rounds\(|enginetest\.Each\(' -- '*_test.go'

# The parts of make nightly. Before a release they run with FUZZTIME=10m. SEED, by default the day, decides what the seeds are.
NIGHTLY = fuzz soak rounds stress fire
FIRST_SEED = $(NIGHT)000000

nightly: $(NIGHTLY:%=nightly-%) ## run for hours what .ci/run leaves out, or a part of it, such as nightly-fuzz

nightly-fuzz:
	$(MAKE) fuzz FUZZTIME=$(if $(filter file,$(origin FUZZTIME)),1m,$(FUZZTIME))

nightly-soak:
	@printf 'to repeat: make $@ SEED=%s\n' '$(NIGHT)'
	SETTEE_FIRST_SEED=$(FIRST_SEED) $(MAKE) soak SEEDS=1h
	SETTEE_FIRST_SEED=$(FIRST_SEED) $(MAKE) soak SEEDS=10m SOAK='(TestRandom|TestRandomUpdates)' SOAK_PKGS=./pkg/docstore
	SETTEE_FIRST_SEED=$(FIRST_SEED) $(MAKE) soak SEEDS=30m SOAK='(TestRandom|TestRandomMirrors|TestNamesRandom|TestParkingSimulation)' SOAK_PKGS=./replicator/jobs
	SETTEE_FIRST_SEED=$(FIRST_SEED) $(MAKE) soak SEEDS=10m SOAK=TestCheckpointsClaimNothingThatIsNotThere SOAK_PKGS=./replicator/worker

nightly-rounds: node $(INSTALLED)
	SETTEE_ROUNDS=all $(TEST_ENV) go tool withservers -couchdb -pouchdb -chromium go test -tags '$(TAGS)' -count=1 $(TEST_FLAGS) -timeout $(BENCH_TIMEOUT) $$($(ROUNDS) | $(FOLDERS))
	@if [ -n "$$SECOND_COUCHDB_HOME" ]; then COUCHDB_HOME=$$SECOND_COUCHDB_HOME $(MAKE) test TEST_FLAGS='$(TEST_FLAGS) -count=1'; fi
	SETTEE_ROUNDS=all $(MAKE) test-packages TEST_TIMEOUT=$(BENCH_TIMEOUT)
	$(MAKE) test-rules

nightly-stress:
	@printf 'to repeat: make $@ SEED=%s\n' '$(NIGHT)'
	$(MAKE) stress STRESS_FLAGS='-n 3 -seed $(NIGHT)'
	@left=$$(go tool withservers -fdb -couchdb -missing 2>&1); if [ -n "$$left" ]; then printf '%s\n' "$$left"; else \
		$(MAKE) stress STRESS_FLAGS='-n 3 -seed $(NIGHT)' TAGS=fdb PKGS="$(ENGINE_PKGS)"; fi

# The time of each of the ten runs of make fire in nightly-fire.
NIGHTLY_FIRE = 10m

nightly-fire:
	@printf 'to repeat: make $@ SEED=%s\n' '$(NIGHT)'
	@left=$$(go tool withservers -fdb -couchdb -missing 2>&1); if [ -n "$$left" ]; then printf '%s\n' "$$left"; exit; fi; \
	for n in 0 1 2 3 4 5 6 7 8 9; do $(MAKE) fire FIRE=$(NIGHTLY_FIRE) SEED=$(NIGHT)$$n || exit 1; done; \
	SETTEE_ROUNDS=all $(MAKE) rolling ROLLING=220 SEED=$(NIGHT)

lint: ## check the format, the imports and the code (TAGS=fdb: only folders with files of that build)
	@files=$$(gofmt -l .) || exit 1; \
	if [ -n "$$files" ]; then printf 'gofmt would change:\n%s\n' "$$files" >&2; exit 1; fi
	$(TEST_ENV) CGO_ENABLED=0 go build -modfile=scripts/tools.mod -o '$(LINT)' github.com/golangci/golangci-lint/v2/cmd/golangci-lint
ifeq ($(TAGS),)
	$(BUILD_ENV) $(LINT) run
	cd scripts && $(BUILD_ENV) $(LINT) run --build-tags packages
	cd scripts/manifests && $(BUILD_ENV) $(LINT) run
	cd scripts/monitoring && $(BUILD_ENV) $(LINT) run
else
	$(BUILD_ENV) $(LINT) run --build-tags '$(TAGS)' $$($(TAGGED) ':!scripts' | $(FOLDERS))
	cd scripts && $(BUILD_ENV) $(LINT) run --build-tags '$(TAGS)' $$($(TAGGED) . | $(FOLDERS))
endif

bench: ## run the benchmarks
	go test -tags '$(TAGS)' -run '^$$' -bench . -timeout $(BENCH_TIMEOUT) $(PKGS)
	SETTEE_MANY_DOCUMENTS=100000 go test -tags '$(TAGS)' -run TestManyDocuments -v -timeout $(BENCH_TIMEOUT) ./replicator/scheduler

# The program that measures. docs/benchmarks.md says what was measured with it.
BENCH = go -C scripts build -o '$(CURDIR)/bin/' ./bench && bin/bench

bench-couchdb: build ## compare replications with those of CouchDB on its own databases (BENCH_FLAGS="-all -pairs 5")
	$(BENCH) couchdb -settee $(BIN) $(BENCH_FLAGS)

bench-fdb: ## compare commits, jobs and replications on a temporary FoundationDB
	BENCHTIME=$(BENCHTIME) scripts/bench-fdb

bench-peers: ## compare the job layer with River, a job queue on PostgreSQL (on Debian: postgresql-15)
	@left=$$(go tool withservers -fdb -missing 2>&1) || { printf '%s\n' "$$left" >&2; exit 1; }; \
	if [ -z "$$left" ]; then tags=fdb; else tags=; printf '%s\n' "$$left" >&2; fi; \
	go -C scripts build -tags "$$tags" -o '$(CURDIR)/bin/' ./bench && bin/bench peers $(PEERS_FLAGS)

benchmarks: ## measure settee beside CouchDB and River, and write docs/benchmarks.md (ten minutes; on Debian: postgresql-15)
	$(MAKE) bench-couchdb BENCH_FLAGS='-page $(CURDIR)/docs/benchmarks.md'
	$(MAKE) bench-peers PEERS_FLAGS='-jobs 5000 -turns 3 -page $(CURDIR)/docs/benchmarks.md'

bench-fleet: build ## measure a hundred thousand replications of which few have something to copy (FLEET_FLAGS="-jobs 2000")
	$(BENCH) fleet -settee $(BIN) $(FLEET_FLAGS)

bench-mirror: build ## measure how long a mirror takes to copy a CouchDB of 1,000 databases, beside a loop (MIRROR_FLAGS="-databases 100")
	$(BENCH) mirror -settee $(BIN) $(MIRROR_FLAGS)

bench-budget: build ## measure how much of the budget of a server jobs use, and whether they ask for more (BUDGET_FLAGS="-nodes 3 -kill")
	$(BENCH) budget -settee $(BIN) $(BUDGET_FLAGS)

load: build ## give one node jobs and changes, and print what it took (LOAD_FLAGS="-jobs 100 -rate 100")
	$(BENCH) load -settee $(BIN) $(LOAD_FLAGS)

dashboard: node $(DASHBOARD)/node_modules/.package-lock.json ## build the pages of /_utils/, which the binary contains
	npm run --silent --prefix $(DASHBOARD) check
	npm run --silent --prefix $(DASHBOARD) build

pictures: node $(INSTALLED) ## take the pictures of the dashboard in docs (needs a Chromium)
	SETTEE_REQUIRE=chromium go test -count=1 -run '^TestDashboardPages$$' ./cmd/settee -pictures '$(CURDIR)/docs'

clean: ## remove what build and test have created, except ./data
	rm -rf bin dist $(NPM:%=%/node_modules)

node:
	@for tool in node npm; do \
		command -v $$tool >/dev/null || { \
			echo "$$tool is missing: the tests talk to a server that runs on Node.js (on Debian: apt-get install nodejs npm)" >&2; \
			exit 1; \
		}; \
	done

# npm writes this file last.
$(INSTALLED): %/node_modules/.package-lock.json: %/package.json %/package-lock.json %/.npmrc
	npm ci --prefix $*
	touch $@
