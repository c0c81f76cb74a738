// Command prepare makes the parts of test nodes with the named kernels, or finds them made: prepare
// 6.12 6.1. "cluster" makes a control plane and a kubelet, "images" only the tars of this
// checkout's images.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"jettison/e2e/build"
	"jettison/e2e/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, what := range os.Args[1:] {
		if err := prepare(ctx, what); err != nil {
			fmt.Fprintln(os.Stderr, "prepare:", err)
			os.Exit(1)
		}
	}
}

func prepare(ctx context.Context, what string) error {
	say := func(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }
	switch what {
	case "cluster":
		_, err := build.ControlPlane(ctx, say)
		if err == nil {
			_, err = build.Kubelet(ctx, say)
		}
		if err == nil {
			_, err = build.Helm(ctx, say)
		}
		return err
	case "images":
		return vm.PrepareImages(ctx, say)
	}
	return vm.Prepare(ctx, what, say)
}
