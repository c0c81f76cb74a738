// Package vm is the test node: a throw-away Linux machine in QEMU with containerd, built from distribution packages and
// Go modules (package build), driven from the host over loopback. It plays the kubelet's part towards the runtime (pod cgroups,
// oom_score_adj, labels) and knows nothing of the agent but its image and its DaemonSet manifest.
//
//	parts.go    what a node is made of: kernel, containerd, runc, busybox, the guest's own programs
//	modules.go  which kernel modules are loaded, in which order
//	disk.go     the root disk and the initramfs
//	boot.go     QEMU and its end
//	power.go    a disk that is kept, and a power cut
//	guest.go    commands, files and memory figures of the guest
//	pod.go      pods through the CRI
//	volume.go   their volumes
//	network.go  their network
//	agent.go    the agent as a DaemonSet would run it
//	service.go  the agent as a Debian package and a service of systemd's
//	socket.go   the agent's socket
//	kubelet.go  a real kubelet, for comparison
//	member.go   a kubelet that belongs to a cluster
//	usage.go    what processes of the guest use
//	tests.go    test binaries of this checkout, run in the guest
//	foreign.go  an image of programs that others wrote
//	hostile.go  a runtime that dies or hangs, file systems that hang or keep quotas
package vm
