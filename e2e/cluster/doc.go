// Package cluster runs a real Kubernetes cluster for tests: etcd, kube-apiserver and, on request,
// kube-controller-manager and kube-scheduler as plain processes on loopback that end with the test.
// Its nodes run in QEMU with real kubelets (package vm), or are hollow: kubelets with a fake runtime.
// It lacks cluster DNS, kube-proxy (so service addresses except the API server's), and pod traffic
// between nodes.
//
// If JETTISON_KUBECONFIG names a file, Start returns the cluster of that file, and Join its first
// node: `make e2e-kind`.
//
//	plane.go         Options, Start, and the arguments of each part
//	process.go       a part's process
//	outage.go        killing, pausing and restarting parts
//	certificates.go  the authority and its certificates
//	access.go        clients of the API server: certificates, tokens, kubectl
//	egress.go        the API server's connections to kubelets
//	node.go          nodes in QEMU
//	hollow.go        nodes without a machine
//	workloads.go     workloads of scenarios
package cluster
