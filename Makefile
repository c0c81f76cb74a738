# One verb per target; `make` alone prints them. CI runs `make test` and nothing else.
SHELL := /bin/sh
.DEFAULT_GOAL := help

KERNEL ?= 6.12
COUNT ?= 1
RUN ?= .
KUBE ?=
RUNTIME ?= containerd
CRIO ?=
CLUSTERS ?= 2000
TIMELINES ?= 1000
PODS ?= 1000
OVERLAY ?= containerd
PROGRAMS ?= jettison jettison-bridge jettison-cluster
ARCHES ?= amd64 arm64
DIST ?= dist
NOTICES ?= yes
FUZZTIME ?= 60s
BENCH ?= .
NODES ?= 1000
HOURS ?= 2
BENCH_REACT := ^Benchmark(React|FullSpeed|Mayhem|Idle)
VERSION ?= $(shell deploy/release/version)

# A version in dpkg's order: what leads to a release before the release, and a version without a number before all others.
DEB_VERSION = $(shell echo '$(VERSION)' | sed 's/^v//; s/-/~/; /^[0-9]*\./!s/^/0~/')
SOURCE_DATE = $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# Packages that the tests need besides Go, git and make: a C compiler for -race and runc, and the parts of the test node.
PACKAGES := gcc libc6-dev xz-utils qemu-system-x86 busybox-static cpio e2fsprogs libseccomp-dev pkg-config mmdebstrap

# A go.mod of another project above this folder, or the user's GOFLAGS, must not change the build.
export GOWORK := off
export GOFLAGS :=
export JETTISON_KUBE = $(KUBE)
GO_BUILD = CGO_ENABLED=0 GOOS=linux go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$(VERSION)"

# $(call step,NAME,COMMAND) runs a command and prints its duration.
step = @echo "== $(1)"; start=$$(date +%s); if $(2); then echo "== $(1): $$(($$(date +%s) - start)) s"; \
	else echo "== $(1): failed after $$(($$(date +%s) - start)) s"; exit 1; fi

.PHONY: help build test e2e soak scrapes oracle e2e-kubelet e2e-cluster e2e-kind ui-test bench bench-react bench-cluster bench-nodes measure generate fuzz lint alerts manifests image deb release reproducible demo deps packages modules parts parts-cluster unit promises promises-cluster smoke deb-version documents

help: ## print the verbs
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

build: ## build bin/jettison, bin/jettison-bridge, bin/jettison-cluster and bin/kubectl-jettison, static binaries for this machine
	$(GO_BUILD) -o bin/jettison ./cmd/jettison
	$(GO_BUILD) -o bin/jettison-bridge ./cmd/jettison-bridge
	$(GO_BUILD) -o bin/jettison-cluster ./cmd/jettison-cluster
	$(GO_BUILD) -o bin/kubectl-jettison ./cmd/kubectl-jettison

test: ## install missing packages, build, vet, lint, unit tests, one VM scenario per promise (CI runs this)
	$(call step,packages,$(MAKE) -s deps)
	$(call step,build,$(MAKE) -s build)
	$(call step,lint,$(MAKE) -s lint)
	$(call step,unit tests,$(MAKE) -s unit)
	$(call step,images for amd64 and arm64,$(MAKE) -s image)
	$(call step,parts of the test node,$(MAKE) -s parts)
	$(call step,promises on kernel 6.12,$(MAKE) -s promises)
	$(call step,parts of a control plane,$(MAKE) -s parts-cluster)
	$(call step,promises on a cluster,$(MAKE) -s promises-cluster)
	$(call step,smoke test on kernel 6.1,$(MAKE) -s smoke)

e2e: deps scrapes ## run every VM scenario: make e2e [KERNEL=6.1] [COUNT=10] [RUN=regexp] [RUNTIME=crio CRIO=folder of crio, conmon and pinns]
	JETTISON_KERNEL=$(KERNEL) JETTISON_RUNTIME=$(RUNTIME) JETTISON_CRIO=$(abspath $(CRIO)) go test ./e2e -count=$(COUNT) -parallel 2 -run '$(RUN)' -v -timeout 600m

soak: deps parts-cluster ## live through churn, leaks, full disks, restarts and clock steps for hours, then through dying nodes and evictions on a cluster: make soak [HOURS=2] [KERNEL=6.1] [NODES=1000]
	JETTISON_HOURS=$(HOURS) JETTISON_KERNEL=$(KERNEL) JETTISON_NODES=$(NODES) go test -p 1 ./e2e ./e2e/cluster -count=1 -run '^TestSoak$$' -v -timeout 48h

scrapes: ## read the agent's metrics with metrics-server's client and Prometheus' parser; fetches 58 MB of modules, once
	cd e2e/metricsserver && go vet ./... && go test ./...

oracle: ## compare jettison-cluster and jettison-pods with the programs that they replace: make oracle [CLUSTERS=2000] [TIMELINES=1000] [PODS=1000]; fetches modules, once
	cd e2e/descheduler && go vet ./... && JETTISON_CLUSTERS=$(CLUSTERS) go test -count=1 -v -timeout 60m ./...
	cd e2e/oracle && go vet ./... && JETTISON_TIMELINES=$(TIMELINES) JETTISON_PODS=$(PODS) go test -count=1 -v -timeout 120m ./...

e2e-kubelet: deps ## compare with a real kubelet on the node (building it takes minutes, once): make e2e-kubelet [KERNEL=6.1] [KUBE=1.36]
	JETTISON_KUBELET=1 JETTISON_KERNEL=$(KERNEL) go test ./e2e -count=$(COUNT) -parallel 1 -run '^TestKubelet' -v -timeout 60m

e2e-cluster: deps parts-cluster ## run scenarios on a real control plane with a node in QEMU: make e2e-cluster [KERNEL=6.1] [KUBE=1.36] [COUNT=10] [RUN=regexp]
	JETTISON_KERNEL=$(KERNEL) go test ./e2e/cluster -count=$(COUNT) -parallel 1 -run '$(RUN)' -v -timeout 120m

bench-cluster: parts-cluster ## measure the cost of 100 and 1,000 bridges in a cluster; 40 minutes: make bench-cluster [BENCH=1000]
	go test ./e2e/cluster -run '^$$' -bench '^BenchmarkBridges$$/$(BENCH)' -benchtime 1x -v -timeout 120m

bench-nodes: parts-cluster ## compare node controllers with kube-controller-manager's, 1,000 nodes, 16 minutes: make bench-nodes [NODES=5000]
	go test ./e2e/cluster -run '^$$' -bench '^BenchmarkNodes$$/^$(NODES)$$' -benchtime 1x -v -timeout 120m
	go test ./cluster/lifecycle -run '^$$' -bench '^BenchmarkDefaultRates$$' -benchtime 1x -v

KIND = cd e2e/kind && GOFLAGS= go tool kind

# The cluster is deleted after the scenarios, also if they fail.
e2e-kind: ## run e2e-cluster on a node of kind; needs Docker and kubectl: make e2e-kind [KIND_IMAGE=kindest/node:...] [RUN=regexp]
	cd e2e/kind && go test ./...
	go run ./e2e/vm/prepare images
	$(KIND) create cluster --config cluster.yaml --kubeconfig $(CURDIR)/bin/kind.conf --wait 5m $(if $(KIND_IMAGE),--image $(KIND_IMAGE))
	$(KIND) load image-archive --name jettison $(CURDIR)/bin/workload.tar $(CURDIR)/bin/jettison.tar && cd $(CURDIR) && \
		JETTISON_KUBECONFIG=$(CURDIR)/bin/kind.conf go test ./e2e/cluster -count=1 -run '$(RUN)' -v -timeout 30m; \
		code=$$?; $(KIND) delete cluster --name jettison --kubeconfig $(CURDIR)/bin/kind.conf; exit $$code

bench: deps ## measure in the VM, eviction to memory view: make bench [KERNEL=6.1] [BENCH=regexp] [COUNT=30]
	JETTISON_KERNEL=$(KERNEL) go test ./e2e -run '^$$' -bench '$(BENCH)' -benchtime $(if $(filter 1,$(COUNT)),10,$(COUNT))x -timeout 600m -v

# Chromium is 300 MB: it is installed only for this target.
ui-test: deps ## open the page in a headless Chromium, over a scripted agent and a live one: make ui-test [RUN=regexp]
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 || { echo "missing: sudo apt-get install --no-install-recommends chromium"; exit 1; }; \
		apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends chromium fonts-dejavu-core; }
	cd e2e/ui && JETTISON_KERNEL=$(KERNEL) go test -count=1 -parallel 1 -run '$(RUN)' -v -timeout 30m .

# Trials of each row: COUNT if it is given, else the row's default. The same for BENCH.
bench-react: deps ## measure the times to the kill and to free memory, compared with other killers; 45 minutes: make bench-react [KERNEL=6.1] [COUNT=3] [BENCH=regexp]
	JETTISON_KERNEL=$(KERNEL) JETTISON_TRIALS=$(if $(filter file,$(origin COUNT)),,$(COUNT)) go test ./e2e -run '^$$' \
		-bench '$(if $(filter file,$(origin BENCH)),$(BENCH_REACT),$(BENCH))' -benchtime 1x -timeout 300m -v

measure: ## print measures of the code's layout and words: make measure [COMMIT=rev] [PLACES=1]; words of a folder: [WORDS=folder]
	@go run ./e2e/measure $(if $(COMMIT),-commit $(COMMIT)) $(if $(PLACES),-places) $(if $(WORDS),-words $(WORDS))

generate: ## write the generated pages of docs/reference (commands, configuration, log messages), the file of "config default", the chart's copies, man pages, completion
	go test ./internal/node/config -run '^TestWhatIsGeneratedIsFresh$$' -generate
	go test . -run '^TestTheLogPageIsFresh$$' -generate
	go test -p 1 ./cmd/... -run '^(TestTheCommandPageIsFresh|TestThePackagedFilesAreFresh)$$' -generate
	cd deploy/helm && go test . -run '^TestChartFilesAreFresh$$' -generate

fuzz: ## run every fuzz test for a while: make fuzz [FUZZTIME=60s]
	@for pkg in $$(go list ./...); do for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
		echo "== $$pkg $$f"; go test $$pkg -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) || exit 1; done; done

lint: ## go vet, gofmt, staticcheck, errcheck, unparam
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "not gofmt-ed:"; echo "$$files"; exit 1; }
	go vet ./...
	go tool -modfile=tools.mod staticcheck ./...
	go tool -modfile=tools.mod errcheck -exclude .errcheck ./...
	go tool -modfile=tools.mod unparam ./...
	cd deploy/render && go vet ./...
	cd deploy/helm && go vet ./...
	cd deploy/release && go vet ./...
	cd e2e/ui && go vet ./...
	cd e2e/kind && go vet ./...

# promtool is in Debian's prometheus: 19 MB to fetch, 96 MB installed, ten packages of JavaScript. It is unpacked here, not installed.
alerts: ## test the alert rules with promtool
	@mkdir -p bin; test -x bin/promtool || { dir=$$(mktemp -d) && (cd $$dir && apt-get -q download prometheus && dpkg -x prometheus_*.deb .) && \
		cp $$dir/usr/bin/promtool bin/ && rm -r $$dir; }
	go test -count=1 -v ./deploy/monitoring

manifests: ## print the manifests that kubectl would apply: make manifests [OVERLAY=containerd|crio|k3s|least-privilege|bridge|cluster]
	@cd deploy/render && go run . $(if $(filter cluster,$(OVERLAY)),../cluster,../overlays/$(OVERLAY))

# $(call documents,BINARY,FOLDER) writes the licences of a binary and its bill of materials into a folder; without NOTICES, only the own licence.
documents = $(if $(NOTICES),bin/release-documents -version '$(VERSION)' -o $(2) $(1),mkdir -p $(2) && cp LICENSE $(2))

documents:
	@mkdir -p bin && go build -C deploy/release -trimpath -buildvcs=false -o $(CURDIR)/bin/release-documents .

# The test node gets one program of one architecture: make image PROGRAMS=jettison ARCHES=amd64 DIST=bin NOTICES=.
image: $(if $(NOTICES),documents) ## write dist/jettison.tar, dist/jettison-bridge.tar and dist/jettison-cluster.tar, OCI images for amd64 and arm64, without a daemon
	@mkdir -p $(DIST)
	@for name in $(PROGRAMS); do binaries=; for arch in $(ARCHES); do \
		GOARCH=$$arch $(GO_BUILD) -o bin/$$name-linux-$$arch ./cmd/$$name && \
		$(call documents,bin/$$name-linux-$$arch,bin/documents/$$name/$$arch) || exit 1; binaries="$$binaries $$arch=bin/$$name-linux-$$arch"; done; \
		CGO_ENABLED=0 go run -trimpath ./deploy/oci/mkimage -image $$name -documents bin/documents/$$name -o $(DIST)/$$name.tar $$binaries || exit 1; done

deb-version:
	@echo '$(DEB_VERSION)'

deb: documents ## write dist/jettison_VERSION_ARCH.deb for amd64 and arm64
	@rm -rf bin/deb/docs bin/deb/man && mkdir -p bin/deb dist && cp -r docs deploy/package/man bin/deb && gzip -9n bin/deb/man/*.1 && \
		chmod -R u=rwX,go=rX bin/deb/docs bin/deb/man
	@for arch in $(ARCHES); do \
		GOARCH=$$arch $(GO_BUILD) -o bin/deb/jettison-linux-$$arch ./cmd/jettison && \
		$(call documents,bin/deb/jettison-linux-$$arch,bin/deb/documents-$$arch) && \
		ARCH=$$arch VERSION=$(DEB_VERSION) SOURCE_DATE_EPOCH=$(SOURCE_DATE) \
		go tool -modfile=release.mod nfpm package -f deploy/package/nfpm.yaml -p deb -t dist/jettison_$(DEB_VERSION)_$$arch.deb || exit 1; done

release: image deb ## write dist/: packages, tarballs, images and bills of materials for amd64 and arm64, with SHA256SUMS
	@for arch in amd64 arm64; do name=jettison-$(VERSION)-linux-$$arch; rm -rf bin/$$name && mkdir -p bin/$$name && \
		cp bin/jettison-linux-$$arch bin/$$name/jettison && cp -r bin/documents/jettison/$$arch/. README.md CHANGELOG.md CONTRIBUTING.md \
		SECURITY.md SUPPORT.md docs deploy/systemd/jettison.service deploy/package/man deploy/package/completion bin/$$name && \
		tar --sort=name --mode=u=rwX,go=rX --mtime=@$(SOURCE_DATE) --owner=0 --group=0 --numeric-owner -C bin -cf - $$name | \
		gzip -9n > dist/$$name.tar.gz && \
		rm -r bin/$$name || exit 1; \
		for name in jettison jettison-bridge jettison-cluster; do \
		cp bin/documents/$$name/$$arch/$$name.cdx.json dist/$$name-$(VERSION)-linux-$$arch.cdx.json || exit 1; done; done
	@cd deploy/helm && go run -trimpath ./mkchart -version '$(VERSION)' -time $(SOURCE_DATE) -o $(CURDIR)/dist
	@cd dist && sha256sum jettison.tar jettison-bridge.tar jettison-cluster.tar jettison_$(DEB_VERSION)_*.deb \
		jettison-$(VERSION)-linux-*.tar.gz jettison-$(VERSION).tgz jettison*-$(VERSION)-linux-*.cdx.json > SHA256SUMS && cat SHA256SUMS
	@cd deploy/release && go test -count=1 -run '^TestArtefacts$$' . -dist $(CURDIR)/dist

# The second build has its own build cache, depth of folder, umask and time zone.
reproducible: ## build the release of the last commit twice, in two folders, and compare the digests; minutes
	@set -e; dir=$$(mktemp -d); mkdir $$dir/second; git clone -q . $$dir/first; (umask 077; git clone -q $$dir/first $$dir/second/folder); \
		$(MAKE) -s -C $$dir/first release; \
		(umask 077; TZ=Asia/Tokyo GOCACHE=$$dir/cache $(MAKE) -s -C $$dir/second/folder release); \
		diff $$dir/first/dist/SHA256SUMS $$dir/second/folder/dist/SHA256SUMS || { echo "the builds differ: compare the files in $$dir"; exit 1; }; \
		rm -rf $$dir; echo "both builds are identical"

demo: packages ## boot a node, let a pod leak, watch the agent save the node (a minute, a few the first time); keep the node and the page until Ctrl-C: make demo [KEEP=1]
	$(call fetch,.,go.mod)
	$(call fetch,deploy/render,go.mod)
	$(GO_BUILD) -o bin/jettison ./cmd/jettison
	$(GO_BUILD) -o bin/demo ./e2e/demo
	@JETTISON_KEEP=$(KEEP) bin/demo

deps: modules packages

packages:
	@missing=; for p in $(PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$p"; done; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" != 0 ]; then echo "missing packages; run:"; \
		echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$$missing"; exit 1; fi; \
	echo "installing$$missing"; apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $$missing

# The modules that build, lint and unit tests need, of this project's go.mod and of the other modules. Each fetched module is a line;
# the second command is quick then, and reports missing ones.
modules:
	$(call fetch,.,go.mod)
	$(call fetch,.,tools.mod)
	$(call fetch,deploy/render,go.mod)
	$(call fetch,deploy/helm,go.mod)
	$(call fetch,deploy/release,go.mod)
	$(call fetch,e2e/ui,go.mod)
	$(call fetch,e2e/kind,go.mod)

fetch = @cd $(1) && go mod download -x -modfile=$(2) 2>&1 | \
	sed -un 's|^\# get .*://[^/]*/\(.*\)/@v/\(.*\)\.zip$$|fetching \1 \2|p'; go mod download -modfile=$(2)

# Tests of code that must not allocate run without the race detector, which allocates.
unit:
	go test -race -short ./...
	cd deploy/render && go test ./...
	cd deploy/helm && go test ./...
	cd deploy/release && go test ./...
	cd e2e/kind && go test ./...
	go test -short -run 'Alloc|TheMemory|TestMemoryOf|VeryFarDown' $$(grep -rlE --include='*_test.go' 'func Test.*(Alloc|TheMemory|MemoryOf|VeryFarDown)' . | xargs -n1 dirname | sort -u)

parts:
	go run ./e2e/vm/prepare 6.12 6.1

# 590 s of CPU time, once.
parts-cluster:
	go run ./e2e/vm/prepare cluster

promises:
	JETTISON_KERNEL=6.12 go test ./e2e -count=1 -parallel 2 -run '^TestPromise' -v -timeout 60m

promises-cluster:
	JETTISON_KERNEL=6.12 go test ./e2e/cluster -count=1 -run '^TestPromise' -v -timeout 30m

smoke:
	JETTISON_KERNEL=6.1 go test ./e2e -count=1 -parallel 2 -run '^TestSmoke' -v -timeout 30m
