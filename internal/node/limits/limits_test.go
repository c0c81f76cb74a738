package limits

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/stats"
)

const mib = 1 << 20

// The figures are results of the kubelet's code: shares = milli*1024/1000, from 2 to 262144; weight
// = 1 + (shares-2)*9999/262142.
func TestCPUWeight(t *testing.T) {
	for milli, want := range map[int64]uint64{
		math.MinInt64: 1, -1: 1, 0: 1, 1: 1, 2: 1, 28: 1, 29: 2, 100: 4, 500: 20, 1000: 39, 2000: 79, 3800: 149, 4000: 157, 64000: 2500, 255999: 9999,
		256000: 10000, 262143: 10000, 1 << 40: 10000, math.MaxInt64: 10000,
	} {
		if got := cpuWeight(milli); got != want {
			t.Errorf("weight of %d milli = %d, want %d", milli, got, want)
		}
	}
}

// More CPU never has less weight, and every weight is valid for the kernel.
func TestCPUWeightGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		x, y := cpuWeight(min(a, b)), cpuWeight(max(a, b))
		if x > y || x < 1 || y > 10000 {
			t.Fatalf("weight of %d milli = %d, of %d milli = %d, want growing values in range", min(a, b), x, max(a, b), y)
		}
	})
}

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// A limit of 0 bytes or tasks would end every pod, so it is not written, like an absent one.
func TestTargets(t *testing.T) {
	for name, c := range map[string]struct {
		enforced v1.ResourceList
		want     Targets
	}{
		"all of it": {list("cpu", "3800m", "memory", "7Gi", "pid", "30000", "ephemeral-storage", "1Gi"),
			Targets{stats.Some[uint64](7 << 30), stats.Some[uint64](30000), stats.Some[uint64](149)}},
		"nothing is known": {nil, Targets{}},
		"nothing is left":  {list("cpu", "0", "memory", "0", "pid", "0"), Targets{CPUWeight: stats.Some[uint64](1)}},
	} {
		if got := TargetsOf(c.enforced); got != c.want {
			t.Errorf("targets of a node with %s = %+v, want %+v", name, got, c.want)
		}
	}
}

func TestLower(t *testing.T) {
	unlimited := cgroup.Limit{Unlimited: true}
	at := func(n uint64) cgroup.Limit { return cgroup.Limit{Bytes: n * mib} }
	for name, c := range map[string]struct {
		target  uint64
		now     cgroup.Limit
		current uint64
		want    cgroup.Limit
		reached bool
	}{
		"little is used":                         {7000, unlimited, 1000, at(7000), true},
		"just enough room":                       {7000, unlimited, 6968, at(7000), true},
		"too near":                               {7000, unlimited, 6969, cgroup.Limit{Bytes: 6969*mib + 160*mib + 6969*mib/32}, false},
		"more is used":                           {7000, unlimited, 8000, at(8000 + 160 + 250), false},
		"more is used, and less than a step ago": {7000, at(8410), 7680, at(7680 + 160 + 240), false},
		"a step too small to be worth it":        {7000, at(8410), 7992, at(8410), false},
		"it grew: the limit stays":               {7000, at(8410), 8400, at(8410), false},
		"raised, whatever is used":               {7000, at(6000), 5999, at(7000), true},
		"what is set already":                    {7000, at(7000), 7000, at(7000), true},
	} {
		got, reached := lower(c.target*mib, c.now, c.current*mib)
		if got != c.want || reached != c.reached {
			t.Errorf("lower of %s = %v MiB, reached %v", name, got.Bytes/mib, reached)
		}
	}
}

// A written limit is never below usage, and never above the previous limit unless the target is.
// With falling usage it reaches its target.
func TestLowerStaysAboveUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.Uint64().Draw(t, "target")
		now := cgroup.Limit{Unlimited: rapid.Bool().Draw(t, "unlimited")}
		if !now.Unlimited {
			now.Bytes = rapid.Uint64().Draw(t, "now")
		}
		current := rapid.Uint64().Draw(t, "current")
		if !now.Unlimited {
			current = min(current, now.Bytes) // the kernel enforces that
		}
		value, reached := lower(target, now, current)
		switch {
		case value == now:
		case value.Unlimited:
			t.Fatal("lower returned an unlimited value")
		case value.Bytes < current:
			t.Fatalf("lower returned %d, below the usage %d", value.Bytes, current)
		case value.Bytes < target:
			t.Fatalf("lower returned %d, below the target", value.Bytes)
		case !now.Unlimited && value.Bytes > now.Bytes && value.Bytes != target:
			t.Fatalf("lower raised the limit from %v to %v, beyond the target %d", now, value, target)
		}
		if reached != (value == cgroup.Limit{Bytes: target}) {
			t.Fatalf("lower returned reached %v with value %v and target %d", reached, value, target)
		}
		if target >= raceMargin {
			if end, ok := lower(target, value, target-raceMargin); !ok || end.Bytes != target {
				t.Fatalf("last limit of falling usage = %v, want the target", end)
			}
		}
	})
}

func TestCapacity(t *testing.T) {
	node := stats.NodeStats{}
	if got := Capacity(&node, 0, nil); len(got) != 0 {
		t.Errorf("capacity of an unknown node = %v, want none", got)
	}
	node.Memory.CapacityBytes, node.PIDs.Max = stats.Some[uint64](8<<30), stats.Some[uint64](32768)
	node.Fs = stats.Some(stats.FsStats{CapacityBytes: stats.Some[uint64](math.MaxUint64)})
	got := Capacity(&node, 4, map[uint64]uint64{2 << 20: 512, 1 << 30: 2})
	want := list("cpu", "4", "memory", "8Gi", "pid", "32768", "ephemeral-storage", "9223372036854775807", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "2Gi")
	if len(got) != len(want) {
		t.Errorf("capacity of the node = %v", got)
	}
	for name, q := range want {
		if have := got[name]; have.Cmp(q) != 0 {
			t.Errorf("capacity of %s = %s, want %s", name, have.String(), q.String())
		}
	}
}

// The capacity of the disk is printed in decimal, memory in binary units, as in a kubelet's message
// about reservations.
func TestCapacityIsPrintedAsTheKubelets(t *testing.T) {
	node := stats.NodeStats{Fs: stats.Some(stats.FsStats{CapacityBytes: stats.Some[uint64](998579896320)})}
	node.Memory.CapacityBytes = stats.Some[uint64](8 << 30)
	capacity := Capacity(&node, 0, nil)
	disk, memory := capacity[v1.ResourceEphemeralStorage], capacity[v1.ResourceMemory]
	if disk.String() != "998579896320" || memory.String() != "8Gi" {
		t.Errorf("printed capacity of disk and memory = %s, %s, want 998579896320, 8Gi", disk.String(), memory.String())
	}
}

// A pod that requests huge pages is rejected if the node lacks pages of their size.
func TestMissingHugePages(t *testing.T) {
	n := admit.NodeState{Allocatable: admit.Allocatable(Capacity(&stats.NodeStats{}, 2, map[uint64]uint64{2 << 20: 0}), admit.Reserved{})}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list("hugepages-2Mi", "1Gi")}}}}}
	if r := admit.Admit(admit.PodAttributes{Pod: p}, n); r.Reason != "OutOfhugepages-2Mi" {
		t.Errorf("admission of huge pages = %+v, want a rejection", r)
	}
}

// Implausible values are skipped; 0 pages of a size are a value.
func TestHugePages(t *testing.T) {
	sys := t.TempDir()
	for name, text := range map[string]string{
		"hugepages-2048kB": "512\n", "hugepages-1048576kB": "0\n", "hugepages-64kB": "many\n", "hugepages-xkB": "1\n", "other-4kB": "1\n",
		"hugepages-0kB": "1\n", "hugepages-16777216kB": "9223372036854775807\n", "hugepages-18446744073709551615kB": "1\n",
	} {
		dir := filepath.Join(sys, "kernel/mm/hugepages", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "nr_hugepages"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := HugePages(sys); !cmp.Equal(got, map[uint64]uint64{2 << 20: 512, 1 << 30: 0}) {
		t.Errorf("huge pages of the node = %v", got)
	}
	if got := HugePages(filepath.Join(sys, "none")); got != nil {
		t.Errorf("huge pages without a directory = %v, want none", got)
	}
}

// The properties of a slice equal the values of its files, in systemd's form.
func TestProperties(t *testing.T) {
	got := map[string]string{}
	var order []string
	for _, p := range properties(map[cgroup.LimitFile]cgroup.Limit{
		cgroup.FileMemoryMax: {Bytes: 7 << 30}, cgroup.FileMemoryHigh: {Unlimited: true}, cgroup.FileMemoryMin: {}, cgroup.FileMemoryLow: {Bytes: 1},
		cgroup.FilePIDsMax: {Bytes: 30000}, cgroup.FileCPUWeight: {Bytes: 149},
	}) {
		got[p.Name], order = p.Value.String(), append(order, p.Name)
	}
	want := map[string]string{
		"MemoryMax": "@t 7516192768", "MemoryHigh": "@t 18446744073709551615", "MemoryMin": "@t 0", "MemoryLow": "@t 1", "TasksMax": "@t 30000",
		"CPUWeight": "@t 149",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(order) != len(want) {
		t.Errorf("properties differ, order %v (-want +got)\n%s", order, diff)
	}
	idle := properties(map[cgroup.LimitFile]cgroup.Limit{cgroup.FileCPUWeight: {}})
	if diff := cmp.Diff([]dbus.Property(nil), idle); diff != "" {
		t.Errorf("properties of an idle slice: %s", diff)
	}
}
