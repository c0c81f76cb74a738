// Package build makes what the test node and the test cluster are put together from, and keeps it between runs.
//
//	cache.go       where it is kept
//	command.go     commands that make it
//	kubernetes.go  Kubernetes' own programs, and etcd
//	helm.go        helm
package build
