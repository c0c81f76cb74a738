package summaryv1

import (
	"math"
	"reflect"
	"testing"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"pgregory.net/rapid"

	"jettison/stats"
)

// A round trip keeps the values that the API type has; the others stay absent.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s stats.Summary
		anything(t, reflect.ValueOf(&s).Elem())
		truthful(&s)
		v := From(&s, "")
		back := To(&v)
		again := From(&back, "")
		for i := range v.Pods { // containers do not have it, so the sum of the API type cannot be made again
			v.Pods[i].ProcessStats, again.Pods[i].ProcessStats = nil, nil
		}
		if !reflect.DeepEqual(v, again) {
			t.Fatalf("round trip changed the Summary\n%+v\nto\n%+v", v, again)
		}
		is, was := back.Node.Memory.Available(stats.MemoryAvailableWorkingSet), s.Node.Memory.Available(stats.MemoryAvailableWorkingSet)
		if is.OK != was.OK || is.OK && is != was {
			t.Fatalf("round trip changed memory.available: %+v to %+v", was, is)
		}
		for i := range s.Pods {
			p, q := &s.Pods[i], &back.Pods[i]
			if p.PodRef != q.PodRef || !q.Announced || p.Memory.WorkingSetBytes != q.Memory.WorkingSetBytes || p.Memory.SwapBytes != q.Memory.SwapBytes || p.EphemeralStorage.UsedBytes != q.EphemeralStorage.UsedBytes {
				t.Fatalf("round trip changed a pod: %+v to %+v", p, q)
			}
		}
	})
}

// anything fills a value of package stats: every Opt present or absent, plausible numbers, at most
// two items in each list.
func anything(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(1, 1<<31).Draw(t, "time"), 0)))
			return
		}
		if ok := v.FieldByName("OK"); ok.IsValid() {
			if ok.SetBool(rapid.Bool().Draw(t, "known")); !ok.Bool() {
				return
			}
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type().Field(i).Name != "OK" {
				anything(t, v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 2).Draw(t, "length"), 2))
		for i := range v.Len() {
			anything(t, v.Index(i))
		}
	case reflect.String:
		v.SetString(rapid.StringN(1, 5, 10).Draw(t, "text"))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64Range(0, 1<<40).Draw(t, "number"))
	case reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 1<<40).Draw(t, "duration"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(0, 100).Draw(t, "share"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "truth"))
	}
}

// truthful removes values that a node cannot have, or that the API type has no field for.
func truthful(s *stats.Summary) {
	n := &s.Node
	n.Memory.CapacityBytes.V = max(n.Memory.CapacityBytes.V, n.Memory.WorkingSetBytes.V)
	n.Memory.HugePagesBytes.V = min(n.Memory.HugePagesBytes.V, n.Memory.CapacityBytes.V-n.Memory.WorkingSetBytes.V)
	n.Allocatable.LimitBytes.V = max(n.Allocatable.LimitBytes.V, n.Allocatable.WorkingSetBytes.V)
	n.Swap.TotalBytes.V = max(n.Swap.TotalBytes.V, n.Swap.FreeBytes.V)
	for i := range s.Pods {
		p := &s.Pods[i]
		p.Memory.LimitBytes.V = max(p.Memory.LimitBytes.V, p.Memory.WorkingSetBytes.V)
		for j := range p.EphemeralStorage.Volumes {
			p.EphemeralStorage.Volumes[j].Memory = false
		}
		p.Network.V.Interfaces = append(p.Network.V.Interfaces, stats.InterfaceStats{Name: "eth0"})
		for j := range p.Containers {
			c := &p.Containers[j]
			c.Memory.LimitBytes.V = max(c.Memory.LimitBytes.V, c.Memory.WorkingSetBytes.V)
			c.Memory.SwapLimitBytes.V = max(c.Memory.SwapLimitBytes.V, c.Memory.SwapBytes.V)
		}
	}
}

// B14, M: the observations equal the kubelet's; one that needs two values is absent without either.
func TestToObserves(t *testing.T) {
	at := time.Unix(1000, 0)
	v := v1alpha1.Summary{Node: v1alpha1.NodeStats{
		Memory:           &v1alpha1.MemoryStats{AvailableBytes: ptr(known(700)), WorkingSetBytes: ptr(known(300))},
		SystemContainers: []v1alpha1.ContainerStats{{Name: "kubelet", Memory: &v1alpha1.MemoryStats{}}, {Name: "pods", Memory: &v1alpha1.MemoryStats{AvailableBytes: ptr(known(50)), WorkingSetBytes: ptr(known(30))}}},
		Rlimit:           &v1alpha1.RlimitStats{MaxPID: signed(known(255816)), NumOfRunningProcesses: signed(known(1000))},
		Fs:               &v1alpha1.FsStats{AvailableBytes: ptr(known(1024)), CapacityBytes: ptr(known(2048)), InodesFree: ptr(known(5))},
		Runtime:          &v1alpha1.RuntimeStats{ImageFs: &v1alpha1.FsStats{AvailableBytes: ptr(known(1)), CapacityBytes: ptr(known(2))}},
		Swap:             &v1alpha1.SwapStats{SwapAvailableBytes: ptr(known(3)), SwapUsageBytes: ptr(known(4))},
	}}
	s := To(&v)
	for signal, want := range map[stats.Signal][2]uint64{
		stats.SignalMemoryAvailable: {700, 1000}, stats.SignalAllocatableMemoryAvailable: {50, 80}, stats.SignalPIDAvailable: {254816, 255816},
		stats.SignalNodeFsAvailable: {1024, 2048}, stats.SignalImageFsAvailable: {1, 2}, stats.SignalSwapAvailable: {3, 7},
		stats.SignalNodeFsInodesFree: {}, stats.SignalContainerFsAvailable: {},
	} {
		o := s.Observe(time.Time{}, signal, stats.MemoryAvailableWorkingSet)
		if o.OK != (want[1] > 0) || o.OK && (o.Value != want[0] || o.Capacity != want[1]) {
			t.Errorf("observed %s = %+v, want %v", signal, o, want)
		}
	}
	v.Node.Memory.WorkingSetBytes, v.Node.Swap.SwapUsageBytes, v.Node.Rlimit.MaxPID = nil, nil, nil
	s = To(&v)
	for _, signal := range []stats.Signal{stats.SignalMemoryAvailable, stats.SignalSwapAvailable, stats.SignalPIDAvailable} {
		if o := s.Observe(at, signal, stats.MemoryAvailableLower); o.OK {
			t.Errorf("%s is observed without both values: %+v", signal, o)
		}
	}
}

// Absent values stay absent, and partially known ones stay known.
func TestToAbsent(t *testing.T) {
	if s := To(&v1alpha1.Summary{Pods: make([]v1alpha1.PodStats, 1)}); !reflect.DeepEqual(s, stats.Summary{Pods: []stats.PodStats{{Announced: true}}}) {
		t.Errorf("empty Summary converts to %+v", s)
	}
	five := ptr(known(5))
	s := To(&v1alpha1.Summary{Pods: []v1alpha1.PodStats{{
		VolumeStats: []v1alpha1.VolumeStats{{Name: "claimed", PVCRef: &v1alpha1.PVCReference{}, FsStats: v1alpha1.FsStats{UsedBytes: five}}, {Name: "unmeasured"}, {Name: "v", FsStats: v1alpha1.FsStats{InodesUsed: five}}},
		Containers:  []v1alpha1.ContainerStats{{Rootfs: &v1alpha1.FsStats{InodesUsed: five}, Logs: &v1alpha1.FsStats{}}},
	}}})
	p := s.Pods[0]
	if len(p.EphemeralStorage.Volumes) != 1 || p.EphemeralStorage.Volumes[0].InodesUsed != 5 || p.Containers[0].Rootfs.V.InodesUsed != 5 || p.Containers[0].Logs.OK {
		t.Errorf("pod with partial data = %+v", p)
	}
}

// Implausible finds an implausible value in every field.
func TestImplausibleFindsEveryField(t *testing.T) {
	full := func() *v1alpha1.Summary {
		var s stats.Summary
		s.Pods = []stats.PodStats{{PodRef: stats.PodReference{UID: "a"}, Containers: make([]stats.ContainerStats, 1)}}
		everything(reflect.ValueOf(&s).Elem())
		v := From(&s, "node")
		return &v
	}
	if err := Implausible(full()); err != nil {
		t.Fatal(err)
	}
	n := len(figures(reflect.ValueOf(full()).Elem(), ""))
	if n < 80 {
		t.Fatalf("number of figures = %d, want all of a Summary", n)
	}
	for i := range n {
		v := full()
		f := figures(reflect.ValueOf(v).Elem(), "")[i]
		switch f.Kind() {
		case reflect.Uint64:
			f.SetUint(math.MaxUint64)
		case reflect.Int64:
			f.SetInt(-1)
		case reflect.Float64:
			f.SetFloat(math.NaN())
		}
		if Implausible(v) == nil {
			t.Errorf("Implausible returns nil for the implausible figure %d (%v)", i, f.Type())
		}
	}
}

// everything sets every number to 1.
func everything(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				everything(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Len() == 0 && v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			everything(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.String:
		if v.Len() == 0 {
			v.SetString("x")
		}
	}
}

// figures returns all numbers of a Summary that affect decisions; network counters do not.
func figures(v reflect.Value, name string) (out []reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && name != "Network" {
			out = figures(v.Elem(), name)
		}
	case reflect.Struct:
		if v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				out = append(out, figures(v.Field(i), v.Type().Field(i).Name)...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, figures(v.Index(i), name)...)
		}
	case reflect.Uint64, reflect.Int64, reflect.Float64:
		out = append(out, v)
	}
	return out
}
