# Each target does what it needs first: on a fresh Debian or Ubuntu, `make demo` and `make test` are all there is to do.

CARGO ?= $(shell command -v cargo || echo $(HOME)/.cargo/bin/cargo)
# The lab needs root; cargo does not.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
SIDESTEP := target/release/sidestep
# What is packed, booted and walked through: what `make build` makes, or a program that is built.
BUILT := $(if $(SIDESTEP_PROGRAM),deps,build)

.PHONY: all deps build demo format test test-kernels test-kernel-newest test-packetdrill test-upgrade test-faults test-docker test-kube-proxy fuzz test-operators soak soak-lab soak-inrpp inrpp-sweep semper-lab coupled-lab irc-lab inrpp-lab bench bench-policy bench-inrpp bench-mptcp-pm bench-ns3 measure docs deb test-deb package clean

all: build

deps: ## Install the system packages and Rust that are missing
	@scripts/deps

build: deps ## Build target/release/sidestep
	$(CARGO) build --release --locked -p sidestep

demo: deps ## The main job: connections step aside from congestion, in the lab (6 minutes from an empty clone on two processors, then 4)
	@SIDESTEP=$$(CARGO=$(CARGO) scripts/build-demo) && SIDESTEP=$$SIDESTEP scripts/demo

format: deps ## Format all code, what macros include too
	@CARGO=$(CARGO) scripts/format

test: deps ## Format, lints, documentation, unit, property and kernel tests
	@CARGO=$(CARGO) scripts/test

soak: deps ## 1,000 faults at random under traffic (daemons, links, interfaces, rules, routes): nothing may be lost
	@CARGO=$(CARGO) scripts/soak

test-faults: deps ## Have each call of the agent to the kernel fail once: what works is never destroyed
	@CARGO=$(CARGO) scripts/test-faults

soak-lab: deps ## Kill labs at random instants, 200 times: the next one cleans up, and touches nothing else
	@CARGO=$(CARGO) scripts/soak-lab

soak-inrpp: deps ## 500 faults at random under traffic through INRPP routers: no connection may be lost, nothing left (SOAK_FAULTS, SOAK_SEED)
	@CARGO=$(CARGO) scripts/soak-inrpp $(or $(SOAK_FAULTS),500) $(or $(SOAK_SEED),1)

test-kernels: $(BUILT) ## Boot Debian's 6.1 and 6.12 under emulation: the BPF programs, doctor, and a small lab
	@CARGO=$(CARGO) scripts/test-kernels

test-kernel-newest: $(BUILT) ## The same on the newest kernel that Debian builds for its stable release
	@CARGO=$(CARGO) scripts/test-kernels trixie-backports

test-packetdrill: build ## packetdrill's tests of TCP without and with an agent: make test-packetdrill PACKETDRILL=CHECKOUT
	@$(SUDO) scripts/test-packetdrill "$(PACKETDRILL)"

test-upgrade: deps ## Agents of another release and of this tree follow each other: make test-upgrade REV=COMMIT (or OLD=PROGRAM)
	@CARGO=$(CARGO) scripts/test-upgrade "$(or $(OLD),$(REV))"

test-operators: ## What happens to hosts and sites with two providers (DHCP, RA, VPN, network managers), as a table: ten minutes
	@scripts/deps dnsmasq:dnsmasq-base radvd:radvd dhcpcd:dhcpcd-base /lib/systemd/systemd-networkd:systemd NetworkManager:network-manager \
		dbus-daemon:dbus wireguard-go:wireguard-go wg-quick:wireguard-tools ping:iputils-ping python3:python3
	$(if $(SIDESTEP_PROGRAM),,$(CARGO) build --locked -p sidestep --no-default-features)
	@$(SUDO) env PATH="$$PATH" $(if $(SIDESTEP_PROGRAM),SIDESTEP_PROGRAM="$(SIDESTEP_PROGRAM)") scripts/test-operators $(WALKS)

test-docker: ## A real dockerd and an agent in one network namespace; DOCKER=DIR holds unpacked packages
	$(CARGO) build --locked -p sidestep --no-default-features
	@$(SUDO) scripts/test-docker $(DOCKER)

test-kube-proxy: ## A real kube-proxy and an agent in one network namespace; KUBE_PROXY=PROGRAM, or it is built by Go
	$(CARGO) build --locked -p sidestep --no-default-features
	@$(SUDO) env PATH="$$PATH" scripts/test-kube-proxy $(KUBE_PROXY)

fuzz: ## Run each fuzz target for SECONDS (60), or one: make fuzz TARGET=agent SECONDS=600
	@CARGO=$(CARGO) SECONDS_EACH=$(or $(SECONDS),60) scripts/fuzz $(TARGET)

deb: $(BUILT) ## Build target/deb/sidestep_VERSION_ARCHITECTURE.deb
	@CARGO=$(CARGO) scripts/deb $(SIDESTEP_PROGRAM)

test-deb: deb ## Install the package into a directory of its own, try it and its units, purge it
	@$(SUDO) scripts/test-deb
	@$(SUDO) scripts/test-units

bench-policy: ## What a call of the path changer's policy costs in the kernel
	$(SUDO) env PATH="$$PATH" $(CARGO) test --locked --workspace --test parity -- --ignored --nocapture what_a_call

# What the bench prints is for people; its output is for `scripts/measurements`.
bench-inrpp: ## What routers of INRPP cost beside the kernel's forwarding, as JSON: ROUNDS (5) of SECONDS (2), or those cases that ONLY names
	@mkdir -p target
	@$(SUDO) env PATH="$$PATH" OUTPUT=$(CURDIR)/target/bench-inrpp.json $(foreach name,ROUNDS SECONDS ONLY,$(if $($(name)),$(name)="$($(name))")) \
		$(CARGO) test --locked --release -p sidestep-inrpp --features command --test router -- --ignored --exact --nocapture cost::what_the_domain_costs >&2
	@cat target/bench-inrpp.json

bench-mptcp-pm: ## 1,000 MPTCP connections of 8 subflows: latency, leaks, time of a list; and of 32, more than there are ports
	$(SUDO) env PATH="$$PATH" $(CARGO) test --locked --release -p sidestep-mptcp --features daemon --test path_manager -- --ignored --nocapture

inrpp-sweep: deps ## INRPP beside plain TCP in 648 cells, and in Abilene and a fat tree, as CSV: ten minutes
	$(CARGO) test --locked -p sidestep-sim -p sidestep-systems --test inrpp -- --ignored --nocapture --test-threads 1 sweep::

semper-lab: build ## Scenarios of the SEMPER paper's figures in lab and simulator, coupled and not, scaled down: an hour and a half
	$(SUDO) scripts/semper-lab --sidestep $(SIDESTEP)

coupled-lab: build ## RFC 6356's goals of coupled congestion control in lab and simulator: an hour and a half
	$(SUDO) scripts/coupled-lab --sidestep $(SIDESTEP)

inrpp-lab: build ## INRPP for unmodified hosts, in the lab and the simulator: half an hour
	$(SUDO) scripts/inrpp-lab --sidestep $(SIDESTEP)

irc-lab: build ## Scenarios of the IRC paper's figures, and of figure 7, in the lab and the simulator: an hour
	$(SUDO) scripts/irc-lab --sidestep $(SIDESTEP)

bench: build ## How fast the parts are; needs a quiet machine
	$(SUDO) $(SIDESTEP) bench wire
	$(SIDESTEP) bench sim

bench-ns3: build ## The simulator against ns-3, on the same networks
	@bench/ns3/run

measure: $(BUILT) ## Make a measurement again and record it in measurements/: make measure WHAT=wires
	@$(if $(SIDESTEP_PROGRAM),SIDESTEP_PROGRAM="$(SIDESTEP_PROGRAM)") scripts/measurements record $(WHAT)

docs: ## Build the site of the documents and the measurements, target/site
	@scripts/docs

# What a stranger's program may build on; the systems' crates have their core and their half of the simulator.
LIBRARIES := net formats paths flow-hash coupled policy balance proto control maxflow engine scenario results sim api bpf-build linux hostd command controller lab \
	tcp prr plb pathchanger mptcp semper route-control rcp inrpp systems

package: deps ## Pack the library crates into target/package, and build what was packed
	$(CARGO) package --exclude-lockfile $(addprefix -p sidestep-,$(LIBRARIES))

clean: ## Remove what was built, results, and what killed labs have left
	-@[ ! -x $(SIDESTEP) ] || $(SUDO) $(SIDESTEP) lab clean
	$(CARGO) clean
	rm -rf out
