package nodepods

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/bridge/verdict"
)

// A pod that was not ready before it is failed is not so since when it was, by the copy too: a null would take the time away from the API.
func TestWhatIsKeptSaysSinceWhen(t *testing.T) {
	now := time.Date(2026, 7, 20, 2, 0, 0, 0, time.UTC)
	since := metav1.NewTime(now.Add(-time.Hour))
	p := pod("u")
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
			Type: kind, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "m", LastTransitionTime: since,
		})
	}
	patch := string(verdict.Patch(now, verdict.Fail, &api.Record{ID: "r"}, keep(p)))
	if want := `"lastTransitionTime":"` + since.UTC().Format(time.RFC3339) + `"`; strings.Count(patch, want) != 2 {
		t.Errorf("%s\nwant %s", patch, want)
	}
}
