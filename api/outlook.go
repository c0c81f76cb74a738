package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"jettison/stats"
)

// Outlook lists the pods that each threshold would evict at one moment, ranked by the code that
// also decides evictions: the answer to GET /v1/outlook.
type Outlook struct {
	Time time.Time `json:"time"` // when the reading of the pods began
	// DryRun, or ObserveDisks for disks: the agent evicts no pod even if a threshold is met.
	DryRun       bool               `json:"dryRun,omitempty"`
	ObserveDisks bool               `json:"observeDisks,omitempty"`
	Thresholds   []ThresholdOutlook `json:"thresholds"` // in the order of the configuration
	// HeldOff lists evicted pods in their hold-off, at most 100. They are no candidates until the
	// hold-off ends.
	HeldOff []HoldState `json:"heldOff,omitempty"`
}

// ThresholdOutlook ranks the pods that one threshold would evict if it were met now.
type ThresholdOutlook struct {
	Signal stats.Signal `json:"signal"`
	// memory.available<100Mi, with " for 30s" after a soft one
	Threshold string `json:"threshold"`
	// in the signal's unit, as in State; nil: not observed
	Observed *uint64 `json:"observed,omitempty"`
	Limit    uint64  `json:"limit,omitempty"` // in the same unit; 0: not observed
	Met      bool    `json:"met"`
	// NoEvictionReason is the reason why the agent would evict no pod. Empty: it would evict the
	// first of Ranking.
	NoEvictionReason string          `json:"withheld,omitempty"`
	Ranking          []RankedPod     `json:"ranking"`        // first victim first, at most 100
	More             int             `json:"more,omitempty"` // candidates after these
	Protected        []ProtectedPods `json:"protected"`      // pods that are never victims, by reason
	// DiskUsageTime is the time of the oldest measurement that Ranking is based on. nil: the
	// threshold is not for a disk, or no disk usage is known.
	DiskUsageTime *time.Time `json:"diskUsageTime,omitempty"`
}

// RankedPod is a candidate of a ThresholdOutlook.
type RankedPod struct {
	Candidate
	Priority *int32 `json:"priority,omitempty"` // nil: unknown, ranked as 0
	// least number of bytes of memory that ending the pod frees; nil: unknown
	Releases *uint64 `json:"releases,omitempty"`
}

// ProtectedPods groups the pods that are protected for one reason.
type ProtectedPods struct {
	Reason string   `json:"reason"`
	Pods   []string `json:"pods"` // Title, sorted, at most 100
	More   int      `json:"more,omitempty"`
}

// Outlook requests the pods that each threshold would evict if it were met. The agent reads the pods
// for it, at most once per second. A StatusError with status 503 has the reason if that fails.
func (c *Client) Outlook(ctx context.Context) (*Outlook, error) {
	text, err := c.ask(ctx, http.MethodGet, PathOutlook, nil)
	if err != nil {
		return nil, err
	}
	var o Outlook
	if err = json.Unmarshal(text, &o); err == nil && o.Thresholds == nil {
		err = errors.New("field thresholds is missing")
	}
	if err != nil {
		return nil, c.failed(http.MethodGet, PathOutlook, malformed(err))
	}
	return &o, nil
}
