// Command record boots a node, runs a pod of each QoS class and writes the files of its cgroups and of /proc that the agent
// reads, as one txtar archive on stdout: the recorded trees that unit tests run on.
//
//	go run ./e2e/vm/record 6.12 > cgroup/testdata/6.12.txtar
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// files of each recorded cgroup; one that a kernel or a group does not have is left out.
const files = "cgroup.controllers cgroup.events cgroup.procs cgroup.stat memory.current memory.stat memory.max memory.events memory.events.local " +
	"memory.pressure cpu.pressure io.pressure cpu.stat io.stat pids.current pids.max pids.events memory.swap.current memory.swap.max memory.peak " +
	"memory.min memory.low memory.high memory.swap.high memory.swap.peak memory.swap.events cpu.weight cpu.max"

// writeOnly files cannot be read; that a group has them is recorded as an empty file.
const writeOnly = "cgroup.kill memory.reclaim"

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
	_, _ = os.Stdout.Write(txtar.Format(archive))
}

func record(ctx context.Context, kernel string) (*txtar.Archive, error) {
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
	groups := "cd /sys/fs/cgroup; for d in . system kubepods kubepods/pod* kubepods/pod*/* kubepods/burstable kubepods/burstable/pod* kubepods/burstable/pod*/* " +
		"kubepods/besteffort kubepods/besteffort/pod* kubepods/besteffort/pod*/*; do [ -d $d ] && echo $d; done; true"
	list, err := n.Shell(ctx, groups)
	if err != nil {
		return nil, err
	}
	archive := &txtar.Archive{Comment: []byte("Recorded on kernel " + n.Kernel + " by go run ./e2e/vm/record.\n")}
	add := func(name, path string) {
		if text, err := n.ReadFile(ctx, path, 0); err == nil {
			archive.Files = append(archive.Files, txtar.File{Name: name, Data: text})
		}
	}
	for group := range strings.FieldsSeq(list) {
		for file := range strings.FieldsSeq(files) {
			name := strings.TrimPrefix(group+"/"+file, "./")
			add("cgroup/"+name, "/sys/fs/cgroup/"+name)
		}
		present, err := n.Shell(ctx, "cd /sys/fs/cgroup/"+group+"; ls "+writeOnly+" 2>/dev/null; true")
		if err != nil {
			return nil, err
		}
		for file := range strings.FieldsSeq(present) {
			archive.Files = append(archive.Files, txtar.File{Name: "cgroup/" + strings.TrimPrefix(group+"/"+file, "./")})
		}
	}
	for _, name := range []string{"meminfo", "pressure/memory", "pressure/cpu", "pressure/io", "vmstat", "zoneinfo", "self/mountinfo"} {
		add("proc/"+name, "/proc/"+name)
	}
	add("sys/kernel/mm/lru_gen/enabled", "/sys/kernel/mm/lru_gen/enabled")
	return archive, nil
}
