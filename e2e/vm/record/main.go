// Command record boots a node, runs a pod of each QoS class and writes the tree.txtar of `jettison snapshot` there to stdout: the recorded
// trees that unit tests run on.
//
//	go run ./e2e/vm/record 6.12 > cgroup/testdata/6.12.txtar
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: record KERNEL")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	archive, err := record(ctx, os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(archive)
}

func record(ctx context.Context, kernel string) ([]byte, error) {
	n, err := vm.Boot(ctx, vm.Options{Kernel: kernel})
	if err != nil {
		return nil, err
	}
	defer n.Close()
	for _, pod := range []*v1.Pod{
		vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"),
		vm.NewPod("burstable", "64Mi", "", "alloc -size 16Mi + fill -size 8Mi /dev/shm/file"),
		vm.NewPod("besteffort", "", "", "alloc -size 8Mi"),
	} {
		if _, err := n.Run(ctx, pod); err != nil {
			return nil, err
		}
	}
	// The program's own command, so that a user's tree is like these.
	text, err := n.Shell(ctx, "jettison snapshot - | busybox tar -xzOf - jettison/tree.txtar")
	return []byte(text), err
}
