package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"jettison/api"
	"jettison/stats"
)

func reasonsOf(all []*v1.Event) (out []string) {
	for _, e := range all {
		out = append(out, e.Namespace+"/"+e.InvolvedObject.Kind+" "+e.Reason)
	}
	return out
}

// Events returns the events that a record calls for, and none older than an hour.
func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		record *api.Record
		v      Verdict
		alone  bool
		want   []string
	}{
		"chosen":                  {record: recordOf(api.OutcomeRunning, nil)},
		"dead":                    {record: recordOf(api.OutcomeRunning, emptied), want: []string{"shop/Pod Evicted", "default/Node EvictionThresholdMet"}},
		"over a limit of its own": {record: recordOf(api.OutcomeBack, func(r *api.Record) { r.Threshold = "" }), want: []string{"shop/Pod Evicted"}},
		"undying":                 {record: recordOf(api.OutcomeUndying, nil), want: []string{"shop/Pod EvictionAbandoned"}},
		"a dry run":               {record: recordOf(api.OutcomeDryRun, nil)},
		"long ago":                {record: recordOf(api.OutcomeBack, func(r *api.Record) { r.Killed.Time = now.Add(-time.Hour - 1) })},
		"of no known name":        {record: recordOf(api.OutcomeBack, func(r *api.Record) { r.Pod.Name = "" })},
		"it lives": {record: recordOf(api.OutcomeBack, nil), v: Verdict{Act: Done, RestartedContainer: "c"},
			want: []string{"shop/Pod Evicted", "default/Node EvictionThresholdMet", "shop/Pod EvictionOutlived"}},
		"held off": {record: recordOf(api.OutcomeBack, func(r *api.Record) { r.HoldOffUntil = now.Add(1) }), alone: true,
			want: []string{"shop/Pod Evicted", "default/Node EvictionThresholdMet", "shop/Pod EvictionHoldOff"}},
		"held off, and failed": {record: recordOf(api.OutcomeBack, func(r *api.Record) { r.HoldOffUntil = now.Add(1) }),
			want: []string{"shop/Pod Evicted", "default/Node EvictionThresholdMet"}},
	} {
		got := Events(now, c.record, c.v, "n1", c.alone)
		if !slices.Equal(reasonsOf(got), c.want) {
			t.Errorf("%s: events %v, want %v", name, reasonsOf(got), c.want)
		}
		names := map[string]bool{}
		for _, e := range got {
			if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || names[e.Namespace+"/"+e.Name] {
				t.Errorf("%s: event name %q is invalid: %v", name, e.Name, wrong)
			}
			names[e.Namespace+"/"+e.Name] = true
		}
	}
}

// Names of events are valid and repeatable, however long the object's name is.
func TestEventNames(t *testing.T) {
	const id = "20260720T015950.000000Z-00Ab"
	for _, object := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 222) + "." + strings.Repeat("b", 30)} {
		got := eventName(object, id, "outlived")
		if wrong := validation.IsDNS1123Subdomain(got); len(wrong) > 0 || !strings.HasSuffix(got, ".20260720t015950.000000z-00ab.outlived") {
			t.Errorf("event name %s is invalid: %v", got, wrong)
		}
	}
}

// A message that is too long for an event is cut at a rune boundary.
func TestMessageIsShortened(t *testing.T) {
	if got := printableMessage(strings.Repeat("ä", 1000)); len(got) > maxMessage || !strings.HasSuffix(got, "ä...") {
		t.Errorf("message has %d bytes, want at most the limit", len(got))
	}
}

// The resource of a signal is in the kubelet's words.
func TestStarvedResource(t *testing.T) {
	for signal, want := range map[stats.Signal]string{
		"memory.available": "memory", "allocatableMemory.available": "memory", "nodefs.available": "ephemeral-storage",
		"imagefs.inodesFree": "inodes", "pid.available": "pids", "memory.pressure.full": "memory.pressure.full", "swap.available": "swap.available",
		"emptydirfs.limit": "ephemeral-storage", "ephemeralpodfs.limit": "ephemeral-storage",
	} {
		if got := starvedResource(signal); got != want {
			t.Errorf("%s: resource %s, want %s", signal, got, want)
		}
	}
}

// An event about lost records is sent for an hour.
func TestRecordsLost(t *testing.T) {
	gap := &api.RecordsGap{Until: "20260720T013000.000001Z-3f2a", Reason: "the file is bounded"}
	if e := RecordsLost(now, "n1", gap); e == nil || e.Reason != reasonLost || !strings.Contains(e.Message, gap.Reason) {
		t.Errorf("event of a recent gap is %+v, want its reason and text", e)
	}
	if e := RecordsLost(now.Add(time.Hour), "n1", gap); e != nil {
		t.Errorf("event of an old gap is %+v, want none", e)
	}
	if e := RecordsLost(now, "n1", &api.RecordsGap{Reason: "the file cannot be read"}); e == nil || len(validation.IsDNS1123Subdomain(e.Name)) > 0 {
		t.Errorf("event of a gap without an ID is %+v, want a valid name", e)
	}
}

// Events of findings keep their names within an interval, and their number is bounded.
func TestFindings(t *testing.T) {
	s := &api.State{
		Time: now, BreakerOpen: "why", Headroom: api.HeadroomState{NeededBytes: 300 << 20, ThresholdBytes: 100 << 20},
		AtOwnLimit: make([]api.LimitState, 100),
	}
	for i := range s.AtOwnLimit {
		s.AtOwnLimit[i] = api.LimitState{Pod: stats.PodReference{Namespace: "shop", Name: "p", UID: "u"}, Since: now}
	}
	got := Findings(s, "n1")
	if len(got) != MaxFindings || got[0].Reason != "EvictionsStopped" || !strings.Contains(got[1].Message, "is 100Mi") || !strings.Contains(got[1].Message, "at least 300Mi") {
		t.Errorf("events of findings are %v, want the bounded list with headroom figures", reasonsOf(got))
	}
	s.Time = now.Add(time.Second)
	if again := Findings(s, "n1"); again[0].Name != got[0].Name {
		t.Errorf("event names %s, then %s, want the same within the interval", got[0].Name, again[0].Name)
	}
	s.Time = now.Add(FindingInterval)
	if again := Findings(s, "n1"); again[0].Name == got[0].Name {
		t.Errorf("event name %s is also used in the next interval", got[0].Name)
	}
	e := &api.Event{Kind: api.EventGarbage, Time: now, Message: api.MessageGarbageFails, Fields: map[string]any{"problems": "x"}}
	if g := GarbageCollectionFailed(e, "n1"); g == nil || g.Reason != "GarbageCollectionFailed" || !strings.HasSuffix(g.Message, ": x") {
		t.Errorf("event of failed garbage collection is %+v, want its problems", g)
	}
	e.Fields["problems"] = "/sys/fs/cgroup/kubepods/\x1b[2Ja\nNode is gone\u202e: busy"
	if got, want := GarbageCollectionFailed(e, "n1").Message, "Garbage collection failed in part: /sys/fs/cgroup/kubepods/ [2Ja Node is gone : busy"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	e.Fields["problems"] = []any{"a is busy", "and 3 more"} // as decoded from the agent's JSON
	if got, want := GarbageCollectionFailed(e, "n1").Message, "Garbage collection failed in part: a is busy; and 3 more"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	e.Message = "garbage collected"
	if GarbageCollectionFailed(e, "n1") != nil {
		t.Error("an event is returned for successful garbage collection")
	}
}
