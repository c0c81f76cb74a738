package endpoints

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Summary is encoded once for concurrent requests, and dropped from memory afterwards.
func TestSummaryIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c encoded
		s := &v1alpha1.Summary{Node: v1alpha1.NodeStats{NodeName: "w1"}}
		first, err := c.text(s, false)
		if err != nil || len(first) == 0 {
			t.Fatal(string(first), err)
		}
		if again, _ := c.text(s, false); &again[0] != &first[0] {
			t.Error("same Summary encoded a second time")
		}
		time.Sleep(2 * time.Minute) // in the synctest bubble
		synctest.Wait()
		if c.summary != nil || c.json[0] != nil {
			t.Error("Summary in memory after two minutes")
		}
		if again, err := c.text(s, true); err != nil || len(again) == 0 {
			t.Error(string(again), err)
		}
	})
}
