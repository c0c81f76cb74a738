package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"jettison/stats"
)

// Outlook is whom the agent would have evicted at one moment, by the code that decides: the answer
// to GET /v1/outlook.
type Outlook struct {
	Time time.Time `json:"time"` // of the look at pods
	// DryRun, or ObserveDisks for disks: nobody goes whatever is met.
	DryRun       bool               `json:"dryRun,omitempty"`
	ObserveDisks bool               `json:"observeDisks,omitempty"`
	Thresholds   []ThresholdOutlook `json:"thresholds"` // in the order of the configuration
	// HeldOff are evicted pods that are kept out when they come back, and so are no candidates until
	// then; at most 100.
	HeldOff []HoldState `json:"heldOff,omitempty"`
}

// ThresholdOutlook is whom one threshold would have evicted, if it asked for a victim now.
type ThresholdOutlook struct {
	Signal stats.Signal `json:"signal"`
	// memory.available<100Mi, with " for 30s" after a soft one
	Threshold string `json:"threshold"`
	// in the signal's unit, as State has it; nil: it is not observed
	Observed *uint64 `json:"observed,omitempty"`
	Limit    uint64  `json:"limit,omitempty"` // likewise
	Met      bool    `json:"met"`
	// Withheld says why nobody would go all the same. Empty: the first of Ranking would.
	Withheld  string          `json:"withheld,omitempty"`
	Ranking   []RankedPod     `json:"ranking"`        // first victim first, at most 100
	More      int             `json:"more,omitempty"` // candidates after these
	Protected []ProtectedPods `json:"protected"`      // those that are never victims, by why
}

// RankedPod is a candidate in its place.
type RankedPod struct {
	Candidate
	Priority *int32 `json:"priority,omitempty"` // nil: nobody has told, which counts as 0
	// bytes of memory that its end returns for sure; nil: not known
	Releases *uint64 `json:"releases,omitempty"`
}

// ProtectedPods are pods that one reason protects.
type ProtectedPods struct {
	Reason string   `json:"reason"`
	Pods   []string `json:"pods"` // Title, sorted, at most 100
	More   int      `json:"more,omitempty"`
}

// Outlook asks whom each threshold would have evicted, were it met. The agent looks at its pods for
// that, at most once a second.
func (c *Client) Outlook(ctx context.Context) (*Outlook, error) {
	text, err := c.ask(ctx, http.MethodGet, PathOutlook, nil)
	if err != nil {
		return nil, err
	}
	var o Outlook
	if err = json.Unmarshal(text, &o); err == nil && o.Thresholds == nil {
		err = errors.New("no thresholds")
	}
	if err != nil {
		return nil, c.failed(http.MethodGet, PathOutlook, malformed(err))
	}
	return &o, nil
}
