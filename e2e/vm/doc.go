// Package vm runs the test node: a throw-away Linux machine in QEMU with containerd or CRI-O, built
// from distribution packages and Go modules (package build) and driven from the host over loopback. It
// acts as the kubelet for the runtime (pod cgroups, oom_score_adj, labels), and depends only on the
// agent's image and its DaemonSet manifest.
//
//	parts.go    parts of a node: kernel, containerd, runc, busybox, the guest's own programs
//	modules.go  kernel modules and their load order
//	disk.go     the root disk and the initramfs
//	crio.go     CRI-O instead of containerd, from a folder of ready programs
//	boot.go     starting and ending QEMU
//	power.go    a persistent disk, and a power cut
//	guest.go    commands, files and memory figures of the guest
//	pod.go      pods through the CRI
//	volume.go   their volumes
//	network.go  their network
//	agent.go    the agent as a DaemonSet would run it
//	service.go  the agent as a Debian package and a systemd service
//	socket.go   the agent's socket
//	kubelet.go  a real kubelet, for comparison
//	member.go   a kubelet that belongs to a cluster
//	usage.go    resource usage of the guest's processes
//	tests.go    test binaries of this checkout, run in the guest
//	foreign.go  an image of programs of other projects
//	debian.go   programs of Debian, with the C library that they need
//	earlyoom.go earlyoom, for comparison
//	prometheus.go  Prometheus, which scrapes the node's pods
//	layout.go   cgroup layouts in which pods do not have their containers
//	hostile.go  a runtime that dies or hangs, file systems that hang or keep quotas
package vm
