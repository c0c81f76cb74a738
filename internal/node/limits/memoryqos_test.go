package limits

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"jettison/cgroup"
	"jettison/stats"
)

func some(v uint64) stats.Opt[uint64] { return stats.Some(v) }

var unknown stats.Opt[uint64]

// Those marked K are of the kubelet's TestGenerateContainerConfigWithMemoryQoSEnforced, on a node
// with 32Gi allocatable.
func TestThrottledAt(t *testing.T) {
	b := Budget{Allocatable: 32 << 30, Factor: 0.9, Page: 4096}
	for name, c := range map[string]struct {
		request, limit stats.Opt[uint64]
		factor         float64
		want           uint64 // 0: it is not throttled
	}{
		"K: request 128Mi, limit 256Mi":        {some(128 << 20), some(256 << 20), 0.9, 255012864},
		"K: request 128Mi, no limit":           {some(128 << 20), some(0), 0.9, 30937186304},
		"half of the way, and not whole pages": {some(100_000_000), some(1_000_000_000), 0.5, 549998592},
		"all of the way":                       {some(128 << 20), some(256 << 20), 1, 256 << 20},
		"K: the request is the limit":          {some(256 << 20), some(256 << 20), 0.9, 0},
		"K: neither request nor limit":         {some(0), some(0), 0.9, 30923763712},
		"K: no factor":                         {some(128 << 20), some(256 << 20), 0, 0},
		"no factor and no request":             {some(0), some(0), 0, 0},
		"a limit, and a request of 0":          {some(0), some(100 << 20), 0.9, 94371840},
		"less than a page above the request":   {some(4096), some(4100), 0.9, 0},
		"a limit below a page":                 {some(0), some(4000), 0.9, 0},
		"a request above the limit":            {some(256 << 20), some(128 << 20), 0.9, 0},
		"a request above what is allocatable":  {some(64 << 30), some(0), 0.9, 0},
		"no number holds it":                   {some(0), some(math.MaxUint64), 1, 0},
		"the limit is not known":               {some(128 << 20), unknown, 0.9, 0},
		"the request is not known":             {unknown, some(128 << 20), 0.9, 0},
	} {
		b.Factor = c.factor
		got, ok := throttledAt(c.request, c.limit, b)
		if ok != (c.want > 0) || ok && got != c.want {
			t.Errorf("memory.high of %s = %d, ok %v, want %d", name, got, ok, c.want)
		}
	}
}

// written returns settings as text, in MiB.
func written(s Settings) map[string]string {
	out := map[string]string{}
	for path, files := range s {
		for file, to := range files {
			out[path+" "+strings.TrimPrefix(string(file), "memory.")] = fmt.Sprintf("%s %d", []string{"+", ">=", "<="}[to.Rule], to.Bytes/mib)
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	const sliced = "k.slice/k-kubepods.slice/k-kubepods-burstable.slice/k-kubepods-burstable-podc.slice"
	pods := []Pod{
		{Cgroup: "kubepods/poda", QOSClass: stats.Guaranteed, Request: some(300 * mib), Containers: []Container{
			{Cgroup: "kubepods/poda/1", Request: some(100 * mib), Limit: some(100 * mib)},
			{Cgroup: "kubepods/poda/2", Request: some(200 * mib), Limit: some(200 * mib)},
		}},
		{Cgroup: "kubepods/burstable/podb", QOSClass: stats.Burstable, Request: some(50 * mib), Containers: []Container{
			{Cgroup: "kubepods/burstable/podb/1", Request: some(50 * mib), Limit: some(150 * mib)},
			{Cgroup: "kubepods/burstable/podb/2", Request: some(0), Limit: some(0)},
		}},
		{Cgroup: sliced, QOSClass: stats.Burstable, Request: some(20 * mib), Containers: []Container{{Cgroup: sliced + "/x.scope", Request: some(20 * mib)}}},
		{Cgroup: "kubepods/besteffort/podd", QOSClass: stats.BestEffort, Request: some(0), Containers: []Container{
			{Cgroup: "kubepods/besteffort/podd/1", Request: some(0), Limit: some(0)},
		}},
		{Cgroup: "kubepods/burstable/podf", QOSClass: stats.Burstable, Request: some(100 * mib), Limit: some(200 * mib)},
		{Cgroup: "kubepods/podg", QOSClass: stats.Guaranteed, Request: some(10 * mib), Limit: some(10 * mib)},
		{Cgroup: "kubepods/burstable/pode", QOSClass: stats.Burstable, Containers: []Container{
			{Cgroup: "kubepods/burstable/pode/1", Request: some(7 * mib)}, // of a pod with unknown request
		}},
	}
	want := map[string]string{
		"kubepods min": "+ 310", "kubepods low": "+ 150", "kubepods/burstable low": "+ 150",
		"kubepods/poda min": ">= 300", "kubepods/poda/1 min": ">= 100", "kubepods/poda/2 min": ">= 200",
		"kubepods/burstable/podb low": ">= 50", "kubepods/burstable/podb/1 low": ">= 50", "kubepods/burstable/podb/1 high": "<= 140",
		"kubepods/burstable/podb/2 high": "<= 900", "kubepods/besteffort/podd/1 high": "<= 900",
		"kubepods/burstable/podf low": ">= 100", "kubepods/burstable/podf high": "<= 190", "kubepods/podg min": ">= 10",
		"k.slice low": "+ 20", "k.slice/k-kubepods.slice low": "+ 20", "k.slice/k-kubepods.slice/k-kubepods-burstable.slice low": "+ 20",
		sliced + " low": ">= 20", sliced + "/x.scope low": ">= 20",
	}
	b := Budget{Allocatable: 1000 * mib, Factor: 0.9, Page: 4096}
	if diff := cmp.Diff(want, written(Plan(pods, b))); diff != "" {
		t.Errorf("Plan of all classes differs (-want +got):\n%s", diff)
	}
	b.Allocatable = 250 * mib // the requests exceed node allocatable
	cut := written(Plan(pods, b))
	for at, want := range map[string]string{"kubepods min": "+ 250", "kubepods low": "", "kubepods/poda min": ">= 250", "kubepods/poda/2 min": ">= 200", "kubepods/burstable/podb low": "",
		"kubepods/burstable/podb/1 low": "", "kubepods/burstable/podb/1 high": "<= 140", "k.slice low": ""} {
		if cut[at] != want {
			t.Errorf("plan with little allocatable: %s = %s, want %s", at, cut[at], want)
		}
	}
	b.Factor = 0
	for at := range written(Plan(pods, b)) {
		if strings.HasSuffix(at, " high") {
			t.Errorf("plan without a factor has %s", at)
		}
	}
	b.Allocatable = 0
	if got := Plan(pods, b); len(got) > 0 {
		t.Errorf("plan without allocatable = %v, want none", got)
	}
}

func TestSettingWith(t *testing.T) {
	at, most := func(n uint64) cgroup.Limit { return cgroup.Limit{Bytes: n} }, cgroup.Limit{Unlimited: true}
	for _, c := range []struct {
		rule         Rule
		bytes        uint64
		before, want cgroup.Limit
	}{
		{More, 10, at(5), at(15)}, {More, 10, most, most}, {More, 10, at(math.MaxUint64), at(math.MaxUint64)},
		{AtLeast, 10, at(5), at(10)}, {AtLeast, 10, at(15), at(15)}, {AtLeast, 10, most, most},
		{AtMost, 10, at(5), at(5)}, {AtMost, 10, at(15), at(10)}, {AtMost, 10, most, at(10)},
	} {
		if got := (Setting{c.bytes, c.rule}).with(c.before); got != c.want {
			t.Errorf("setting combined with a value, %+v = %v", c, got)
		}
	}
}

// For any pods: each cgroup above pods has the sum of those below it, and all pods together get at
// most node allocatable. A pod gets less than its request only if that is used up, by Guaranteed
// pods first. No cgroup has more than its request or the pod. No BestEffort pod is protected. No
// container is throttled within its request.
func TestPlanIsWholeUpwards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Budget{Allocatable: rapid.Uint64Range(1, 1<<40).Draw(t, "allocatable"), Factor: 0.9, Page: 4096}
		var pods []Pod
		classes := map[stats.QOSClass]string{stats.Guaranteed: "a/kubepods", stats.Burstable: "a/kubepods/burstable", stats.BestEffort: "a/kubepods/besteffort"}
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			class := rapid.SampledFrom([]stats.QOSClass{stats.Guaranteed, stats.Burstable, stats.BestEffort}).Draw(t, "class")
			p := Pod{Cgroup: fmt.Sprintf("%s/pod%d", classes[class], i), QOSClass: class}
			if rapid.Bool().Draw(t, "pod level") {
				p.Limit = some(rapid.Uint64Range(1, 1<<36).Draw(t, "pod limit"))
			}
			if rapid.Bool().Draw(t, "known") {
				p.Request = some(rapid.Uint64().Draw(t, "request") >> rapid.IntRange(0, 40).Draw(t, "shift"))
			}
			for j := range rapid.IntRange(0, 3).Draw(t, "containers") {
				p.Containers = append(p.Containers, Container{
					Cgroup:  fmt.Sprintf("%s/%d", p.Cgroup, j),
					Request: some(rapid.Uint64Range(0, 1<<36).Draw(t, "asks")), Limit: some(rapid.Uint64Range(0, 1<<36).Draw(t, "limit")),
				})
			}
			pods = append(pods, p)
		}
		checkPlan(t, Plan(pods, b), pods, b)
	})
}

func checkPlan(t *rapid.T, s Settings, pods []Pod, b Budget) {
	sums, total := map[string]uint64{}, uint64(0)
	cut := map[stats.QOSClass]bool{}
	for _, p := range pods {
		for _, file := range protections[:2] {
			own := s[p.Cgroup][file].Bytes
			if total += own; own > p.Request.V || total > b.Allocatable {
				t.Fatalf("%s %s = %d, all pods %d, want at most the request %d and allocatable %d", p.Cgroup, file, own, total, p.Request.V, b.Allocatable)
			}
			if own > 0 && (p.QOSClass == stats.BestEffort || (file == cgroup.FileMemoryMin) != (p.QOSClass == stats.Guaranteed)) {
				t.Fatalf("%s pod has %s %s = %d, want the file of its class", p.QOSClass, p.Cgroup, file, own)
			}
			for _, path := range above(p.Cgroup) {
				sums[path+string(file)] += own
			}
		}
		file, may := protectionOf(p.QOSClass)
		own := s[p.Cgroup][file].Bytes
		cut[p.QOSClass] = cut[p.QOSClass] || may && own < p.Request.V
		if high, ok := s[p.Cgroup][cgroup.FileMemoryHigh]; ok && (!p.Request.OK || high.Bytes <= p.Request.V || high.Bytes > p.Limit.V) {
			t.Fatalf("pod %s throttled at %d, want between request and limit", p.Cgroup, high.Bytes)
		}
		for _, c := range p.Containers {
			if got := s[c.Cgroup][file].Bytes; got > own {
				t.Fatalf("container %s has %s = %d, want at most the pod's %d", c.Cgroup, file, got, own)
			}
			if high, ok := s[c.Cgroup][cgroup.FileMemoryHigh]; ok && (high.Bytes <= c.Request.V || high.Bytes%b.Page != 0) {
				t.Fatalf("container %s throttled at %d, want above its request", c.Cgroup, high.Bytes)
			}
		}
	}
	if low := sums["a"+string(cgroup.FileMemoryLow)]; cut[stats.Guaranteed] && low > 0 || (cut[stats.Guaranteed] || cut[stats.Burstable]) && total < b.Allocatable {
		t.Fatalf("pods cut: %v, although all pods have %d of %d, Burstable ones %d", cut, total, b.Allocatable, low)
	}
	for _, path := range []string{"a", "a/kubepods", "a/kubepods/burstable", "a/kubepods/besteffort"} {
		for _, file := range protections[:2] {
			if got, want := s[path][file].Bytes, sums[path+string(file)]; got != want {
				t.Fatalf("sum in %s %s = %d, want %d", path, file, got, want)
			}
		}
	}
}
