package explain

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"jettison/api"
	"jettison/internal/base/terminal"
	"jettison/internal/node/nodetest"
)

func answer() *api.Outlook {
	available, limit, priority, freed := uint64(850<<20), uint64(100<<20), int32(1000), uint64(780<<20)
	memory := api.ThresholdOutlook{
		Signal: "memory.available", Threshold: "memory.available<100Mi", Observed: &available, Limit: limit,
		Ranking: []api.RankedPod{
			{Candidate: api.Candidate{Pod: "default/leaker", UID: "u1", QOSClass: "BestEffort", Keys: "uses 800Mi, over its request of 0, BestEffort"},
				Releases: &freed},
			{Candidate: api.Candidate{Pod: "shop/web-5d9c7b6d8f-x7k2p", UID: "u2", QOSClass: "Burstable", DecidedBy: "priority",
				Keys: "uses 90Mi, over its request of 64Mi, priority 1000, Burstable"}, Priority: &priority},
		},
		More: 3,
		Protected: []api.ProtectedPods{
			{Reason: "critical pod (priority 2000001000)", Pods: []string{"kube-system/kube-proxy-4q8vd", "kube-system/cilium-x\x1b[2J"}},
			{Reason: "static pod (source file)", Pods: []string{"kube-system/etcd-w1"}, More: 2},
			{Reason: "this agent runs in it", Pods: []string{"jettison/jettison-x7k2p"}},
		},
	}
	disk := memory
	disk.Signal, disk.Threshold, disk.Met = "nodefs.available", "nodefs.available<10%", true
	disk.NoEvictionReason = "disk signals only set conditions on this node (disk: observe)"
	until, owner := time.Date(2026, 7, 20, 2, 0, 40, 0, time.Local), &api.HoldOwner{Kind: "DaemonSet", UID: "d", Namespace: "shop", Pod: "agent-x7k2p"}
	return &api.Outlook{Time: time.Unix(0, 0), Thresholds: []api.ThresholdOutlook{memory, disk}, HeldOff: []api.HoldState{
		{UID: "u9", Owner: owner, Until: until, Times: 2, Reason: "The node was low on resource: memory."},
		{Owner: owner, Until: until, Times: 2, Reason: "it replaces a pod that was evicted from this node"},
		{UID: "7c9b3f4e-1f0a-4d52-9c41-0a6d8d8a9a11", Until: until, Times: 1, Reason: "The node was low on resource: memory."},
	}}
}

// The output fits the terminal and matches the golden files.
func TestOutput(t *testing.T) {
	for _, width := range []int{80, 100, 120} {
		var out bytes.Buffer
		screen := terminal.Fixed(&out, width)
		if err := printSummary(answer(), screen, false); err != nil {
			t.Fatal(err)
		}
		all := answer()
		if err := selectSignal(all, "memory.available"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(screen.Print(nil), printRankings(all, screen, false)); err != nil {
			t.Fatal(err)
		}
		nodetest.Golden(t, fmt.Sprintf("explain-%d.txt", width), out.String())
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("terminal width %d: line has %d columns: %q", width, n, line)
			}
		}
	}
}

// A ranking older than two seconds is announced with the reason.
func TestAgeNotice(t *testing.T) {
	if got := ageNotice(maxAge); got != "" {
		t.Errorf("notice for a current ranking = %q, want none", got)
	}
	if got := ageNotice(3240 * time.Millisecond); !strings.Contains(got, "is 3.2s old: reading the pods took this long") {
		t.Errorf("notice for an old ranking = %q, want its age and the reason", got)
	}
}

// Disk usage older than three minutes is announced with the oldest age.
func TestDiskNotice(t *testing.T) {
	now := time.Now()
	o := &api.Outlook{Time: now}
	for _, age := range []time.Duration{0, maxDiskAge, 42 * time.Minute, time.Minute} {
		at := now.Add(-age)
		o.Thresholds = append(o.Thresholds, api.ThresholdOutlook{}, api.ThresholdOutlook{DiskUsageTime: &at})
	}
	if got := diskNotice(o); !strings.Contains(got, "up to 42m0s old and is being measured again") {
		t.Errorf("notice for old disk usage = %q, want its age", got)
	}
	o.Thresholds = o.Thresholds[:4]
	if got := diskNotice(o); got != "" {
		t.Errorf("notice for current disk usage = %q, want none", got)
	}
}

// An unknown signal is an error that suggests the nearest one.
func TestUnknownSignal(t *testing.T) {
	err := selectSignal(answer(), "memory.avialable")
	if !errors.Is(err, errUnknownSignal) || !strings.Contains(err.Error(), `did you mean "memory.available"?`) {
		t.Errorf("error = %v, want errUnknownSignal with a suggestion", err)
	}
}
