package verdict

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
)

var now = time.Date(2026, 7, 20, 2, 0, 0, 500e6, time.UTC)

func podOf(change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: reasonFailed},
		}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func recordOf(outcome api.Outcome, change func(*api.Record)) *api.Record {
	r := &api.Record{
		ID: "20260720T015950.000000Z-0001", Outcome: outcome, Message: "The node was low on resource: memory. ", Signal: "memory.available",
		Threshold: "memory.available<100Mi", Disruption: true, Pod: api.Victim{UID: "u", Namespace: "shop", Name: "web"},
		Began: api.Stamp{Time: now.Add(-10 * time.Second)}, Killed: api.Stamp{Time: now.Add(-10 * time.Second)},
	}
	if change != nil {
		change(r)
	}
	return r
}

// killedAgo returns a change of the time of the kill.
func killedAgo(d time.Duration) func(*api.Record) {
	return func(r *api.Record) { r.Killed.Time = now.Add(-d) }
}

// ended returns a change that ends a pod's containers with codes; -1: not ended.
func ended(codes ...int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, code := range codes {
			var c v1.ContainerStatus
			if c.State.Running = (&v1.ContainerStateRunning{}); code >= 0 {
				c.State.Running, c.State.Terminated = nil, &v1.ContainerStateTerminated{ExitCode: code}
			}
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, c)
		}
	}
}

// again marks a pod's status as restored or yielded once.
func again(p *v1.Pod) { p.Annotations[Annotation] += "#1" }

// endsAlone makes a pod one that ends by itself, because it is not restarted.
func endsAlone(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }

// containerEndsAlone does so by a restart policy of a container.
func containerEndsAlone(p *v1.Pod) {
	p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
}

// neverStarted makes a pod's containers wait for an init container that failed.
func neverStarted(p *v1.Pod) {
	p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
}

// both returns a change that makes all of these.
func both(all ...func(*v1.Pod)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, f := range all {
			f(p)
		}
	}
}

// hostPort gives a pod a host port.
func hostPort(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }

func claim(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x"}} }

func resourceClaim(p *v1.Pod) {
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{}
}

func emptied(r *api.Record) { r.Emptied = api.Stamp{Time: now.Add(-9 * time.Second)} }

func cleaned(r *api.Record) {
	emptied(r)
	r.Cleaned = api.Stamp{Time: now.Add(-8 * time.Second)}
}

// diedAtOnce makes a record one of a kill a moment ago, whose victim was dead 50 ms later.
func diedAtOnce(r *api.Record) {
	killedAgo(MarkDelay / 2)(r)
	r.Emptied = api.Stamp{Time: r.Killed.Time.Add(50 * time.Millisecond)}
}

// stopped makes a record one of a slow graceful stop.
func stopped(r *api.Record) {
	cleaned(r)
	r.Killed, r.Emptied.Time = api.Stamp{}, now.Add(-time.Second)
}

func longSince(r *api.Record) {
	cleaned(r)
	r.Killed.Time = now.Add(-KubeletGrace)
}

func mine(phase v1.PodPhase, reason string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{Annotation: "20260720T015950.000000Z-0001"}
		p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, "The node was low on resource: memory. "
	}
}

func target(status v1.ConditionStatus, reason string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: status, Reason: reason})
	}
}

func startedAt(at time.Time, terminated bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		s := v1.ContainerStatus{Name: "c"}
		if terminated {
			s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{StartedAt: metav1.NewTime(at.Truncate(time.Second))}
		} else {
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at.Truncate(time.Second))}
		}
		p.Status.ContainerStatuses = []v1.ContainerStatus{s}
	}
}

// Judge returns the action for a record in every state of its pod.
func TestJudge(t *testing.T) {
	killed := now.Add(-10 * time.Second)
	for name, c := range map[string]struct {
		record *api.Record
		pod    *v1.Pod
		want   Act
	}{
		"chosen":                                {recordOf(api.OutcomeRunning, nil), podOf(nil), Mark},
		"killed just now":                       {recordOf(api.OutcomeRunning, killedAgo(MarkDelay-1)), podOf(nil), Wait},
		"killed a moment ago":                   {recordOf(api.OutcomeRunning, killedAgo(MarkDelay)), podOf(nil), Mark},
		"killed, and the clock is set back":     {recordOf(api.OutcomeRunning, killedAgo(-time.Hour)), podOf(nil), Mark},
		"stopped just now":                      {recordOf(api.OutcomeRunning, func(r *api.Record) { r.Began.Time, r.Killed = now, api.Stamp{} }), podOf(nil), Mark},
		"chosen and marked":                     {recordOf(api.OutcomeRunning, nil), podOf(target(v1.ConditionTrue, ReasonTarget)), Wait},
		"chosen and marked by another":          {recordOf(api.OutcomeRunning, nil), podOf(target(v1.ConditionTrue, "PreemptionByScheduler")), Wait},
		"over a limit of its own":               {recordOf(api.OutcomeRunning, func(r *api.Record) { r.Disruption = false }), podOf(nil), Wait},
		"dead, and its sandbox is there":        {recordOf(api.OutcomeRunning, emptied), podOf(target(v1.ConditionTrue, ReasonTarget)), Fail},
		"dead, and its sandbox has a port":      {recordOf(api.OutcomeRunning, emptied), podOf(both(target(v1.ConditionTrue, ReasonTarget), hostPort)), Wait},
		"dead for long, its sandbox has a port": {recordOf(api.OutcomeRunning, func(r *api.Record) { r.Emptied.Time = now.Add(-SandboxTimeout) }), podOf(hostPort), Fail},
		"back, and its sandbox has a port":      {recordOf(api.OutcomeBack, emptied), podOf(both(target(v1.ConditionTrue, ReasonTarget), hostPort)), Wait},
		"back, and when it died is not known":   {recordOf(api.OutcomeBack, nil), podOf(target(v1.ConditionTrue, ReasonTarget)), Wait},
		"killed just now, with a port":          {recordOf(api.OutcomeRunning, killedAgo(MarkDelay/2)), podOf(hostPort), Mark},
		"killed just now, with a claim":         {recordOf(api.OutcomeRunning, killedAgo(MarkDelay/2)), podOf(claim), Mark},
		"dead just now, with a port":            {recordOf(api.OutcomeRunning, diedAtOnce), podOf(hostPort), Mark},
		"dead just now, with a claim":           {recordOf(api.OutcomeRunning, diedAtOnce), podOf(both(claim, endsAlone)), Mark},
		"dead just now, with a claim, marked":   {recordOf(api.OutcomeRunning, diedAtOnce), podOf(both(claim, endsAlone, target(v1.ConditionTrue, ReasonTarget))), Done},
		"dead just now, with a claim, restarts": {recordOf(api.OutcomeRunning, diedAtOnce), podOf(claim), Done},
		"chosen, with a claim":                  {recordOf(api.OutcomeRunning, nil), podOf(claim), Mark},
		"cleaned, with a claim":                 {recordOf(api.OutcomeBack, cleaned), podOf(claim), Done},
		"cleaned, with a claim of a resource":   {recordOf(api.OutcomeBack, cleaned), podOf(resourceClaim), Done},
		"cleaned, and the outcome is not known": {recordOf(api.OutcomeRunning, cleaned), podOf(nil), Fail},
		"seen to run again by the agent":        {recordOf(api.OutcomeBack, func(r *api.Record) { cleaned(r); r.Restarted = now }), podOf(nil), Done},
		"preempted":                             {recordOf(api.OutcomeBack, func(r *api.Record) { cleaned(r); r.StatusReason = "Preempting" }), podOf(mine(v1.PodFailed, "Preempting")), Hold},
		"back":                                  {recordOf(api.OutcomeBack, cleaned), podOf(nil), Fail},
		"not back":                              {recordOf(api.OutcomeNotBack, cleaned), podOf(nil), Fail},
		"failed":                                {recordOf(api.OutcomeBack, cleaned), podOf(mine(v1.PodFailed, ReasonEvicted)), Hold},
		"failed, and the reason is lost":        {recordOf(api.OutcomeBack, cleaned), podOf(mine(v1.PodFailed, "")), Restore},
		"failed, and reverted":                  {recordOf(api.OutcomeBack, cleaned), podOf(mine(v1.PodRunning, "")), Wait},
		"failed, and reverted long ago":         {recordOf(api.OutcomeBack, longSince), podOf(mine(v1.PodRunning, "")), Restore},
		"failed, reverted, clock set back": {recordOf(api.OutcomeBack, func(r *api.Record) {
			longSince(r)
			r.Killed.Time = now.Add(time.Hour)
		}), podOf(mine(v1.PodRunning, "")), Restore},
		"dead, its sandbox has a port, clock set back": {recordOf(api.OutcomeRunning, func(r *api.Record) { r.Emptied.Time = now.Add(time.Hour) }),
			podOf(hostPort), Fail},
		"failed, reverted, and restarted":        {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { mine(v1.PodRunning, "")(p); startedAt(now, false)(p) }), Wait},
		"failed, reverted, and runs":             {recordOf(api.OutcomeBack, longSince), podOf(func(p *v1.Pod) { mine(v1.PodRunning, "")(p); startedAt(now, false)(p) }), Done},
		"failed, all succeeded, no reason":       {recordOf(api.OutcomeBack, cleaned), podOf(both(mine(v1.PodFailed, ""), ended(0, 0))), Hold},
		"failed, one failed, no reason":          {recordOf(api.OutcomeBack, cleaned), podOf(both(mine(v1.PodFailed, ""), ended(0, 137))), Restore},
		"restored, all ended, no reason":         {recordOf(api.OutcomeBack, cleaned), podOf(both(mine(v1.PodFailed, ""), ended(0, 137), again)), Hold},
		"restored, one has not ended, no reason": {recordOf(api.OutcomeBack, cleaned), podOf(both(mine(v1.PodFailed, ""), ended(0, -1), again)), Restore},
		"failed, end not reported":               {recordOf(api.OutcomeBack, cleaned), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(0, -1))), Hold},
		"failed, end not reported for long":      {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(-1))), Yield},
		"failed, end reported":                   {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(137))), Hold},
		"yielded, end not reported":              {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(-1), again)), Hold},
		"ends by itself, end reported":           {recordOf(api.OutcomeBack, cleaned), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(137), endsAlone)), Hold},
		"ends by itself, end reported for long":  {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(137), endsAlone)), Yield},
		"ends by itself, and well, for long":     {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(0), endsAlone)), Yield},
		"its container ends by itself, for long": {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(137), containerEndsAlone)), Yield},
		"ends by itself, yielded":                {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(137), endsAlone, again)), Hold},
		"nothing reported for long":              {recordOf(api.OutcomeBack, longSince), podOf(mine(v1.PodFailed, ReasonEvicted)), Yield},
		"failed, all succeeded, for long":        {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ReasonEvicted), ended(0))), Yield},
		"yielded, no container has started":      {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ""), neverStarted, endsAlone, again)), Hold},
		"yielded, nothing reported":              {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, ""), again)), Restore},
		"failed by its kubelet, too, not ended":  {recordOf(api.OutcomeBack, longSince), podOf(both(mine(v1.PodFailed, "Other"), ended(-1))), Hold},
		"failed for another record":              {recordOf(api.OutcomeBack, func(r *api.Record) { cleaned(r); r.ID = "another" }), podOf(mine(v1.PodFailed, ReasonEvicted)), Done},
		"failed by its kubelet":                  {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), Done},
		"succeeded":                              {recordOf(api.OutcomeBack, cleaned), podOf(mine(v1.PodSucceeded, "")), Done},
		"undying":                                {recordOf(api.OutcomeUndying, nil), podOf(target(v1.ConditionTrue, ReasonTarget)), Unmark},
		"undying, marked by another":             {recordOf(api.OutcomeUndying, nil), podOf(target(v1.ConditionTrue, "other")), Done},
		"undying and not marked":                 {recordOf(api.OutcomeUndying, nil), podOf(target(v1.ConditionFalse, ReasonTarget)), Done},
		"abandoned":                              {recordOf(api.OutcomeAbandoned, nil), podOf(target(v1.ConditionTrue, ReasonTarget)), Unmark},
		"abandoned when it was dead":             {recordOf(api.OutcomeAbandoned, func(r *api.Record) { r.Emptied.Time = now.Add(-time.Hour) }), podOf(nil), Fail},
		"a dry run":                              {recordOf(api.OutcomeDryRun, nil), podOf(nil), Done},
		"gone":                                   {recordOf(api.OutcomeBack, cleaned), nil, Done},
		"another UID":                            {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { p.UID = "v" }), Done},
		"a mirror":                               {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { p.Annotations = map[string]string{mirrorAnnotation: "x"} }), Done},
		"being deleted":                          {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), Done},
		"started before":                         {recordOf(api.OutcomeBack, cleaned), podOf(startedAt(killed.Add(-time.Second), false)), Fail},
		"started in the second of the kill":      {recordOf(api.OutcomeBack, cleaned), podOf(startedAt(killed, false)), Fail},
		"started after":                          {recordOf(api.OutcomeBack, cleaned), podOf(startedAt(killed.Add(2*time.Second), false)), Done},
		"started after, and died again":          {recordOf(api.OutcomeBack, cleaned), podOf(startedAt(killed.Add(2*time.Second), true)), Done},
		"started while others were stopped":      {recordOf(api.OutcomeBack, stopped), podOf(startedAt(killed.Add(2*time.Second), false)), Fail},
		"seen to start while they were stopped":  {recordOf(api.OutcomeBack, func(r *api.Record) { stopped(r); r.Restarted = killed.Add(2 * time.Second) }), podOf(nil), Fail},
		"failed, and its kubelet evicts it":      {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { mine(v1.PodFailed, "Evicted")(p); p.Status.Message = "its own" }), Hold},
		"failed, and its deadline is over":       {recordOf(api.OutcomeBack, cleaned), podOf(mine(v1.PodFailed, "DeadlineExceeded")), Hold},
		"failed, and the message is lost":        {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) { mine(v1.PodFailed, "Evicted")(p); p.Status.Message = "" }), Restore},
		"failed, and there is no message": {recordOf(api.OutcomeBack, func(r *api.Record) { cleaned(r); r.Message = "" }),
			podOf(func(p *v1.Pod) { mine(v1.PodFailed, "Evicted")(p); p.Status.Message = "" }), Hold},
		"started after, and marked": {recordOf(api.OutcomeBack, cleaned), podOf(func(p *v1.Pod) {
			startedAt(killed.Add(2*time.Second), false)(p)
			target(v1.ConditionTrue, ReasonTarget)(p)
		}), Unmark},
		"started during a stop in progress": {recordOf(api.OutcomeRunning, func(r *api.Record) { r.Began, r.Killed = api.Stamp{}, api.Stamp{} }),
			podOf(startedAt(now, false)), Mark},
	} {
		got := Judge(now, c.record, c.pod, time.Time{})
		if explained := got.Reason != ""; got.Act != c.want || explained != (got.Act == Done || got.Act == Restore || got.Act == Yield) && got.Act != Unmark && got.Act != Wait {
			t.Errorf("%s: act %v (%s), want %v", name, got.Act, got.Reason, c.want)
		}
	}
}

// A pod that was set to Failed late, after an outage, is left to its kubelet for the full grace
// time.
func TestLateFailureIsLeftToItsKubelet(t *testing.T) {
	r, failedAt := recordOf(api.OutcomeBack, longSince), now.Add(-time.Second)
	for name, pod := range map[string]*v1.Pod{
		"reverted": podOf(mine(v1.PodRunning, "")), "reverted and restarted": podOf(func(p *v1.Pod) { mine(v1.PodRunning, "")(p); startedAt(now, false)(p) }),
	} {
		if v := Judge(now, r, pod, failedAt); v.Act != Wait || !v.RecheckAt.Equal(failedAt.Add(KubeletGrace)) {
			t.Errorf("%s: act %v until %v, want it left to the kubelet", name, v.Act, v.RecheckAt)
		}
	}
	if v := Judge(failedAt.Add(KubeletGrace), r, podOf(mine(v1.PodRunning, "")), failedAt); v.Act != Restore {
		t.Errorf("act %v after the grace time, want restore", v.Act)
	}
}

// A dead victim with a sandbox that stays is judged again when the sandbox timeout ends.
func TestSandboxTimeout(t *testing.T) {
	r := recordOf(api.OutcomeRunning, emptied)
	v := Judge(now, r, podOf(both(target(v1.ConditionTrue, ReasonTarget), hostPort)), time.Time{})
	if want := r.Emptied.Time.Add(SandboxTimeout); v.Act != Wait || !v.RecheckAt.Equal(want) {
		t.Fatalf("act %v until %v, want wait until %v", v.Act, v.RecheckAt, want)
	}
	if v = Judge(v.RecheckAt, r, podOf(hostPort), time.Time{}); v.Act != Fail {
		t.Errorf("act %v after the sandbox timeout, want fail", v.Act)
	}
}

// A patch contains the pod's UID and version, and no unchanged condition.
func TestPatch(t *testing.T) {
	r := recordOf(api.OutcomeBack, cleaned)
	for act, want := range map[Act]string{
		Fail: `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"jettison/evicted":"20260720T015950.000000Z-0001"}},"status":{"phase":"Failed",` +
			`"reason":"Evicted","message":"The node was low on resource: memory. ","conditions":[DisruptionTarget=True EvictionByJettison,Ready=False PodFailed]}}`,
		Mark:   `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":[DisruptionTarget=True EvictionByJettison]}}`,
		Unmark: `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":[DisruptionTarget=False EvictionByJettison]}}`,
		Yield:  `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"jettison/evicted":"20260720T015950.000000Z-0001"}},"status":{}}`,
		Wait:   "",
	} {
		got := Patch(now, act, r, podOf(nil))
		var p podPatch
		if len(got) > 0 {
			if err := json.Unmarshal(got, &p); err != nil {
				t.Fatal(err)
			}
		}
		var conditions []string
		for _, c := range p.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
			if !c.LastTransitionTime.Equal(&metav1.Time{Time: now.Truncate(time.Second)}) {
				t.Errorf("condition %v has another transition time than now", c)
			}
		}
		text := string(got)
		if from, _, ok := strings.Cut(text, `"conditions":[`); ok {
			text = from + `"conditions":[` + strings.Join(conditions, ",") + "]}}"
		}
		if text != want {
			t.Errorf("act %v: patch\n%s\nwant\n%s", act, text, want)
		}
	}
	for was, want := range map[string]string{"": r.ID, "another": r.ID, r.ID: r.ID + "#1", r.ID + "#1": r.ID + "#2", r.ID + "#x": r.ID + "#1"} {
		pod := podOf(func(p *v1.Pod) { p.Annotations = map[string]string{Annotation: was} })
		if got := string(Patch(now, Restore, r, pod)); !strings.Contains(got, `"jettison/evicted":"`+want+`"`) {
			t.Errorf("annotation %q, want %q in the patch %s", was, want, got)
		}
	}
	r.Disruption = false
	if got := string(Patch(now, Fail, r, podOf(nil))); strings.Contains(got, "DisruptionTarget") {
		t.Errorf("a pod over its own limit gets DisruptionTarget: %s", got)
	}
}

// The admission policies accept the texts of a pod with any number of containers. Otherwise its
// eviction would not be visible.
func TestTextsOfManyContainers(t *testing.T) {
	r := recordOf(api.OutcomeBack, cleaned)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("%s-%02d", strings.Repeat("c", 60), i))
		r.Message += fmt.Sprintf("Container %s was using 12345Ki, request is 0, has larger consumption of memory. ", names[i])
	}
	r.Annotations = map[string]string{"offending_containers": strings.Join(names, ","), "starved_resource": "memory"}
	for _, act := range []Act{Mark, Fail} {
		var p podPatch
		if err := json.Unmarshal(Patch(now, act, r, podOf(nil)), &p); err != nil {
			t.Fatal(err)
		}
		texts := []string{p.Status.Message}
		for _, c := range p.Status.Conditions {
			texts = append(texts, c.Message)
		}
		for _, text := range texts {
			if len(text) > 4096 || len(text) > 0 && !strings.HasPrefix(text, "The node was low") {
				t.Errorf("act %v: text of %d bytes exceeds the policy's limit", act, len(text))
			}
		}
	}
	for _, e := range Events(now, r, Verdict{}, "n1", false) {
		for key, value := range e.Annotations {
			if len(value) > 2048 {
				t.Errorf("event %s: %d bytes of annotation %s exceed the policy's limit", e.Reason, len(value), key)
			}
		}
	}
	if len(r.Annotations["offending_containers"]) <= 2048 {
		t.Error("the record's annotations were changed")
	}
}

// A pod that was not ready before it failed keeps the transition time of its conditions.
func TestPodThatWasNotReady(t *testing.T) {
	since := metav1.NewTime(now.Add(-time.Hour).Truncate(time.Second).UTC())
	pod := podOf(func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [c]", LastTransitionTime: since,
		}, {Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: reasonFailed}}
	})
	r := recordOf(api.OutcomeBack, cleaned)
	r.Disruption = false
	want := `"conditions":[{"type":"Ready","status":"False","reason":"PodFailed","message":"","lastTransitionTime":"` +
		since.Format(time.RFC3339) + `"}]}}`
	if got := string(Patch(now, Fail, r, pod)); !strings.HasSuffix(got, want) {
		t.Errorf("conditions\n%s\nwant\n%s", got, want)
	}
}
