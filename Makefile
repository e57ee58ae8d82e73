# virtkit from a fresh Debian machine: `make up` for a cluster with a VM, `make test` for every test.
# `make help` lists the rest.

NAME      ?= virt-local
NODES     ?= 2
VERSION   ?= v0.0.0-dev
REGISTRY  ?= ghcr.io/virtkit
# The images' tag that belongs to the version, as pkg/client/action/install has it.
TAG       ?= $(if $(filter %-dev,$(VERSION)),dev,$(VERSION))

# The same flags everywhere, so that all builds share one cache; a change of them compiles Kubernetes anew.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0

# A development build does not name its commit: it would be linked, and rolled out, again for every one.
PKG     := github.com/virtkit/virtkit/pkg/version
LDFLAGS := -s -w -X $(PKG).gitVersion=$(VERSION)
ifneq ($(TAG),dev)
LDFLAGS += -X $(PKG).gitCommit=$(shell git rev-parse HEAD) -X $(PKG).gitTreeState=$(if $(shell git status --porcelain),dirty,clean) \
           -X $(PKG).buildDate=$(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
endif
IMAGES := virt-server virt-launcher tiny-disk
NOVNC  := pkg/client/action/vnc/novnc/files/novnc.zip

.DEFAULT_GOAL := help
.PHONY: help deps build images image-guestfs debian up down generate lint test test-unit test-generated test-integration test-e2e test-long test-csi test-slow lab lab-shell lab-down chaos fuzz bench scale release-check clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' Makefile

deps: ## Install what is missing from Debian packages
	@dev/deps.sh

# virtctl's page for `vnc --web`.
$(NOVNC): pkg/client/action/vnc/novnc/fetch/main.go
	@dev/step.sh "Fetching noVNC"
	@go run ./pkg/client/action/vnc/novnc/fetch

# grpcnotrace leaves gRPC's debug pages out, and with them html/template, whose use of reflection keeps the linker
# from dropping a third of the program.
build: $(NOVNC) ## Build bin/virtctl, bin/virt-server, bin/virt-exporter, bin/virt-launcher and bin/virt-local
	@dev/step.sh "Building virtctl, virt-server, virt-exporter, virt-launcher"
	@go build -ldflags '$(LDFLAGS)' -o bin/virtctl ./cmd/virtctl
	@go build -tags grpcnotrace -ldflags '$(LDFLAGS)' -o bin/virt-server ./cmd/virt-server
	@go build -tags exporter,grpcnotrace -ldflags '$(LDFLAGS)' -o bin/virt-exporter ./cmd/virt-server
	@CGO_ENABLED=1 go build -tags launcher,libvirt_dlopen,grpcnotrace -ldflags '$(LDFLAGS)' -o bin/virt-launcher ./cmd/virt-server
	@test -e bin/virt-local || dev/step.sh "Building virt-local: the first time this compiles Kubernetes, which takes minutes"
	@cmd/virt-local/build

images: build ## Build the container images, bin/images/*.tar
	@test -e bin/images/virt-launcher.tar || dev/step.sh "Building images: the first time this fetches Debian packages, which takes minutes"
	@go run ./images/build --registry $(REGISTRY) --tag $(TAG) --out bin/images $(IMAGES)

image-guestfs: ## Build the image of `virtctl guestfs`, bin/images/libguestfs-tools.tar; no other target needs it
	@go run ./images/build --registry $(REGISTRY) --tag $(TAG) --out bin/images libguestfs-tools

debian: build
	@go run ./images/build --registry $(REGISTRY) --tag $(TAG) --out bin/images debian-disk

lab: export VIRTKIT_PATIENCE ?= 10
lab: deps images ## Boot an emulated machine with KVM, systemd and more, and test virtkit in it (LAB_RUN=, LAB_KEEP=1; slow; CI does not run it)
	@dev/step.sh "Building the lab's machine"
	@go run ./images/build --out bin/images lab
	@go test -tags lab -count=1 -timeout 6h -v -run '$(LAB_RUN)' ./tests/lab

lab-shell: ## A shell in a lab that was kept (LAB= its name, of several)
	@go run ./tests/lab/shell $(LAB)

lab-down: ## End a lab that was kept
	@go run ./tests/lab/shell --down $(LAB)

up: deps images ## Start a cluster on this machine with virtkit and the VM demo (NAME=, NODES=)
	@dev/up.sh $(NAME) $(NODES) $(REGISTRY) $(TAG)

down: ## Remove that cluster (NAME=)
	@dev/down.sh $(NAME)

generate: ## Write generated files anew: CRDs, protobuf, API surface, completions, command reference
	go generate ./...

lint: ## Check format, vet, staticcheck, and which package imports which
	@dev/lint.sh

test: ## Run what CI runs; up to an hour on a cold machine with two cores
	@dev/test.sh lint generated unit integration e2e

test-unit: ## Run the quick tests
	@dev/test.sh unit

test-generated: ## Check that generated files are current
	@dev/test.sh generated

test-integration: ## Run the tests against a real API server
	@dev/test.sh integration

test-e2e: ## Run the tests against a cluster of their own, without the longest
	@dev/test.sh e2e

test-long: ## Run all tests against a cluster of their own; before a release
	@dev/test.sh long

test-csi: ## Run the tests of virt-local's CSI driver alone, as root
	@dev/test.sh csi

test-slow: ## Run the tests with a real cloud image, which boots for minutes (CI does not run them)
	@dev/test.sh slow

chaos: ## Kill every process in every phase of a guest's life; CHAOS_SEED=, CHAOS_KILLS=, CHAOS_TIME= (40 minutes; CI does not run it)
	@dev/test.sh chaos

# Exported, for a regular expression may hold what a recipe would not survive.
fuzz: export FUZZTIME ?= 30s
fuzz: export FUZZ ?= .*
fuzz: ## Fuzz what reads words of guests, tenants and nodes; longer with FUZZTIME=5m, only some with FUZZ=FuzzParse
	@dev/fuzz.sh

bench: deps images ## Measure speed and memory against their goals, as a table (`go run ./tests/bench -h` for more)
	@dev/step.sh "Measuring"
	@go run ./tests/bench

scale: build ## Soak tests that bound memory, processor time and latency (minutes; CI does not run them)
	@dev/step.sh "Soaking"
	@go test -tags scale -count=1 -v -timeout 30m ./tests/scale

release-check: deps ## Check .goreleaser.yaml and build every virtctl, archive and package from it into dist; the first time compiles goreleaser
	@dev/release-check.sh

clean: ## Remove what was built, but not caches
	rm -rf bin
