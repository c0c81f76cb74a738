package endpoints

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Summary is made text once for all that ask, and is not in memory for good because somebody asked once.
func TestASummaryIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c encoded
		s := &v1alpha1.Summary{Node: v1alpha1.NodeStats{NodeName: "w1"}}
		first, err := c.text(s, false)
		if err != nil || len(first) == 0 {
			t.Fatal(string(first), err)
		}
		if again, _ := c.text(s, false); &again[0] != &first[0] {
			t.Error("made twice")
		}
		time.Sleep(2 * time.Minute) // the bubble's
		synctest.Wait()
		if c.of != nil || c.json[0] != nil {
			t.Error("in memory still, two minutes later")
		}
		if again, err := c.text(s, true); err != nil || len(again) == 0 {
			t.Error(string(again), err)
		}
	})
}
