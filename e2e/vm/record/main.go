// Command record boots a node, runs a pod of each QoS class and writes the trees of cgroups, /proc
// and /sys of a `jettison snapshot` there to stdout. Unit tests run on these recorded trees. Given
// the archive of a snapshot, it writes the archive's trees.
//
//	go run ./e2e/vm/record 6.12 > cgroup/testdata/6.12.txtar
//	go run ./e2e/vm/record node.tar.gz > node.txtar
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: record KERNEL|ARCHIVE.tar.gz")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var snapshot []byte
	var err error
	if strings.HasSuffix(os.Args[1], ".tar.gz") {
		snapshot, err = os.ReadFile(os.Args[1])
	} else {
		snapshot, err = record(ctx, os.Args[1])
	}
	var tree []byte
	if err == nil {
		tree, err = treeOf(snapshot)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(tree)
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
	text, err := n.Shell(ctx, "jettison snapshot -") // the program's own command, so the trees are like those of users
	return []byte(text), err
}

// treeOf returns the trees of cgroups, /proc and /sys of a snapshot.
func treeOf(snapshot []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(snapshot))
	if err != nil {
		return nil, err
	}
	const tree = "jettison/tree/"
	out := &txtar.Archive{}
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		name, is := strings.CutPrefix(head.Name, tree)
		switch {
		case is:
			out.Files = append(out.Files, txtar.File{Name: name, Data: text})
		case head.Name == "jettison/versions.txt":
			for line := range strings.Lines(string(text)) {
				if kernel, is := strings.CutPrefix(line, "kernel "); is {
					out.Comment = fmt.Appendf(nil, "Recorded on kernel %s by jettison snapshot.\n", strings.TrimSpace(kernel))
				}
			}
		}
	}
	if len(out.Files) == 0 {
		return nil, errors.New("the snapshot has no tree: read its errors.txt")
	}
	return txtar.Format(out), nil
}
