package nodedescheduler

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
	"jettison/internal/node/records"
	"jettison/stats"
	"jettison/stats/read"
)

var t0 = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// podIndex returns a pod that restarts too often, a pod with unknown owner, and a static pod.
func podIndex(edit func(*cri.Listing)) read.Index {
	l := cri.Listing{Time: t0}
	for _, name := range []string{"web", "bare", "static"} {
		s := cri.PodSandbox{ID: "s-" + name, UID: "u-" + name, Name: name, Namespace: "shop", Ready: true, CreatedAt: t0.Add(-time.Hour)}
		switch name {
		case "web":
			s.Owner = "ReplicaSet"
		case "static":
			s.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}
		l.Sandboxes = append(l.Sandboxes, s)
		for attempt := range uint32(2) {
			l.Containers = append(l.Containers, cri.Container{ID: name + string('a'+rune(attempt)), SandboxID: s.ID, Name: "c", Attempt: 200 + attempt,
				State: cri.Exited, CreatedAt: t0.Add(-time.Hour), Ended: &cri.End{Code: int32(1 - attempt), At: t0.Add(-time.Minute)}})
		}
	}
	if edit != nil {
		edit(&l)
	}
	return read.NewIndex(l)
}

func seen(edit func(*cri.Listing)) *Input {
	out := &Input{Pods: podIndex(edit), Summary: &stats.Summary{}, Policy: &eviction.Policy{}}
	out.PodObjects = []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-web"}}}
	return out
}

func settings() *config.Config {
	c := config.Default()
	c.Deschedule = config.DescheduleAct
	return c
}

func part() (*Descheduler, *bytes.Buffer) {
	var log bytes.Buffer
	return New(t0.Add(-time.Hour), logthrottle.New(slog.New(slog.NewTextHandler(&log, nil)))), &log
}

func TestPass(t *testing.T) {
	p, log := part()
	c := settings()
	if !p.Due(t0, c) {
		t.Fatal("Due() = false an hour after the last pass, want true")
	}
	victims := p.Plan(t0, c, seen(nil), true)
	if len(victims) != 1 || victims[0].Pod.PodRef.UID != "u-web" || !victims[0].Planned() || victims[0].Reason != "Descheduled" ||
		victims[0].Message != "RemovePodsHavingTooManyRestarts: 201 restarts >= maxRestarts 100" {
		t.Fatalf("victims = %+v, want only pod web with its restarts\n%s", victims, log)
	}
	if p.Due(t0.Add(time.Second), c) {
		t.Error("Due() = true a second after a pass, want false")
	}
	p.RecordEviction(t0, victims[0].Pod.PodRef, nil)
	if again := p.Plan(t0.Add(time.Hour), c, seen(nil), true); len(again) != 0 {
		t.Errorf("victims an hour later = %+v, want none: the pod came back", again)
	}
	if later := p.Plan(t0.Add(25*time.Hour), c, seen(nil), true); len(later) != 1 {
		t.Errorf("victims after 25 hours = %+v, want one", later)
	}
}

// A restarted agent remembers the pods that the previous process stopped.
func TestEvictedPodsAreRememberedAcrossRestarts(t *testing.T) {
	p, _ := part()
	victims := p.Plan(t0, settings(), seen(nil), true)
	p.RecordEviction(t0, victims[0].Pod.PodRef, nil)
	next, _ := part()
	next.Resume(p.Save())
	if again := next.Plan(t0.Add(time.Hour), settings(), seen(nil), true); len(again) != 0 {
		t.Errorf("victims after a restart = %+v, want none: the pod came back", again)
	}
	for i := range maxRemembered + 5 {
		next.RecordEviction(t0.Add(time.Duration(i+1)*time.Second), stats.PodReference{UID: fmt.Sprint(i)}, nil)
	}
	if got := next.Save(); len(got) != maxRemembered || slices.ContainsFunc(got, func(d records.Descheduled) bool { return d.UID == "u-web" }) {
		t.Errorf("remembered pods = %d, want the newest %d", len(got), maxRemembered)
	}
}

// A pod that could not be evicted is logged and selected again by a later pass.
func TestFailedEvictionIsRetriedAndLogged(t *testing.T) {
	p, log := part()
	victims := p.Plan(t0, settings(), seen(nil), true)
	p.RecordEviction(t0, victims[0].Pod.PodRef, errors.New("it cannot be pinned"))
	if again := p.Plan(t0.Add(time.Hour), settings(), seen(nil), true); len(again) != 1 || !strings.Contains(log.String(), "cannot be pinned") {
		t.Errorf("victims of the second pass = %+v, want one and the error in the log\n%s", again, log)
	}
}

func TestReportModeEvictsNothing(t *testing.T) {
	p, log := part()
	if victims := p.Plan(t0, settings(), seen(nil), false); len(victims) != 0 || !strings.Contains(log.String(), `"pod would be descheduled" victim=shop/web`) {
		t.Errorf("victims in report mode = %+v, want none and a log line\n%s", victims, log)
	}
	off := settings()
	off.Deschedule = config.Off
	if p.Due(t0.Add(24*time.Hour), off) {
		t.Error("Due() = true with deschedule: off, want false")
	}
}

// Pod objects provide data that the runtime lacks: the owner and the use of local storage.
func TestPodObjectsAddData(t *testing.T) {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare", UID: "u-bare",
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: new(true)}}}}
	s := seen(nil)
	s.PodObjects = append(s.PodObjects, object)
	c := settings()
	c.Descheduling.MaxPods = 5
	p, log := part()
	if victims := p.Plan(t0, c, s, true); len(victims) != 2 {
		t.Errorf("victims = %+v, want web and bare\n%s", victims, log)
	}
	object.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if victims := p.Plan(t0, c, s, true); len(victims) != 1 {
		t.Errorf("victims with an emptyDir = %+v, want only web\n%s", victims, log)
	}
}

// Without a pod object the use of local storage is unknown. The owner is known from labels.
func TestRuntimeDataAlone(t *testing.T) {
	s := seen(nil)
	s.PodObjects = nil
	p, log := part()
	if victims := p.Plan(t0, settings(), s, true); len(victims) != 0 {
		t.Errorf("victims = %+v, want none: local storage is unknown\n%s", victims, log)
	}
	c := settings()
	c.Descheduling.EvictLocalStorage = true
	if victims := p.Plan(t0, c, s, true); len(victims) != 1 || victims[0].Pod.PodRef.Name != "web" {
		t.Errorf("victims with evictLocalStorage = %+v, want web\n%s", victims, log)
	}
}

func TestAgeComesFromKubeletAnnotation(t *testing.T) {
	s := seen(func(l *cri.Listing) {
		l.Sandboxes[0].Annotations = map[string]string{seenAnnotation: t0.Add(-100 * time.Hour).Format(time.RFC3339Nano)}
		l.Sandboxes[1].Annotations = map[string]string{seenAnnotation: "long ago"}
	})
	look := s.Look()
	for i := range look.Pods {
		want := t0.Add(-time.Hour)
		if look.Pods[i].Name == "web" {
			want = t0.Add(-100 * time.Hour)
		}
		if !look.Pods[i].Since.Equal(want) {
			t.Errorf("pod %s: Since = %v, want %v", look.Pods[i].Name, look.Pods[i].Since, want)
		}
	}
}
