// Package cluster is a real Kubernetes cluster for tests: etcd, kube-apiserver and, where they are asked for, kube-controller-manager and
// kube-scheduler as plain processes on loopback, ended with the test; nodes in QEMU whose kubelets register there (package vm), or hollow
// ones, kubelets that pretend to run what they are given. What is not there: cluster DNS, kube-proxy, and so service addresses but that of
// the API server, pod traffic between nodes.
//
// Where JETTISON_KUBECONFIG names a file, Start gives the cluster of that file, and Join its first node: `make e2e-kind`.
//
//	plane.go         Options, Start, and what each part is told
//	process.go       a part's process
//	outage.go        parts that die, hang and come back
//	certificates.go  who signs, and for whom
//	access.go        who asks the API server: certificates, tokens, kubectl
//	egress.go        the API server's way to kubelets
//	node.go          nodes in QEMU
//	hollow.go        nodes without a machine
//	workloads.go     what scenarios have the cluster run
package cluster
