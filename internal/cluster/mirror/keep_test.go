package mirror

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod's deadline counts from its creation where a taint is older: without it each pod that comes would go at once.
func TestThatAPodWasMadeIsKept(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if kept := podOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: made}}); !kept.CreationTimestamp.Equal(&made) {
		t.Errorf("it keeps %v, and it was made at %v", kept.CreationTimestamp, made)
	}
}
