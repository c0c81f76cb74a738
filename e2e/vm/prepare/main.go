// Command prepare makes what test nodes with the named kernels need, or finds it made: prepare 6.12 6.1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"jettison/e2e/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, kernel := range os.Args[1:] {
		say := func(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }
		if err := vm.Prepare(ctx, kernel, say); err != nil {
			fmt.Fprintln(os.Stderr, "prepare:", err)
			os.Exit(1)
		}
	}
}
