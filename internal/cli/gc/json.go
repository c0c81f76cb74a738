package gc

import (
	"io"

	"jettison/internal/base/output"
	"jettison/internal/node/garbage"
	"jettison/reclaim"
	"jettison/stats"
)

// planDocument is the JSON format of a plan.
type planDocument struct {
	RemoveContainers []string `json:"removeContainers"`
	RemoveSandboxes  []string `json:"removeSandboxes"`
	RemoveLogs       []string `json:"removeLogs"`
	RemoveImages     []string `json:"removeImages"`
	StopFirst        []string `json:"stopFirst"`
	Errors           []string `json:"errors"`

	// Only for a pass on the node, not from files.
	RemoveLinks   []string `json:"removeLinks,omitempty"`
	RemoveCgroups []string `json:"removeCgroups,omitempty"`
	RemoveVolumes []string `json:"removeVolumes,omitempty"` // UIDs of pods
	Result        *result  `json:"result,omitempty"`
}

func documentOf(p *reclaim.Plan) *planDocument {
	out := &planDocument{
		RemoveContainers: p.IDs(reclaim.RemoveContainer), RemoveSandboxes: p.IDs(reclaim.RemoveSandbox),
		RemoveLogs: p.IDs(reclaim.RemoveLogs), RemoveImages: p.IDs(reclaim.RemoveImage),
		StopFirst: p.StopFirst(), Errors: p.Problems(),
	}
	for _, left := range p.Left {
		out.Errors = append(out.Errors, "kept: "+left.String())
	}
	return out
}

// result is the JSON format of the outcome of a pass.
type result struct {
	Observed       string       `json:"observed,omitempty"`
	PutOff         string       `json:"putOff,omitempty"`
	Error          string       `json:"error,omitempty"`
	Steps          []stepResult `json:"steps"`
	PredictedBytes uint64       `json:"predictedBytes"`
	FreedBytes     *uint64      `json:"freedBytes"` // null: not measured
	Filesystems    []change     `json:"filesystems"`
	LookedSeconds  float64      `json:"lookedSeconds"`
	TookSeconds    float64      `json:"tookSeconds"`
}

type stepResult struct {
	Action         string  `json:"action"`
	ID             string  `json:"id"`
	Outcome        string  `json:"outcome"`
	Reason         string  `json:"reason"`
	Why            string  `json:"why,omitempty"`
	Error          string  `json:"error,omitempty"`
	PredictedBytes *uint64 `json:"predictedBytes"`
	FreedBytes     *uint64 `json:"freedBytes"`
	Seconds        float64 `json:"seconds"`
}

type change struct {
	Path                 string `json:"path"`
	AvailableBytesBefore uint64 `json:"availableBytesBefore"`
	AvailableBytesAfter  uint64 `json:"availableBytesAfter"`
}

// printData prints the plan and its outcome as JSON or YAML.
func (p *pass) printData(w io.Writer, r *garbage.Result) error {
	out := documentOf(&r.Plan)
	out.RemoveLinks, out.RemoveCgroups = r.Plan.IDs(reclaim.RemoveLink),
		r.Plan.IDs(reclaim.RemoveCgroup)
	out.RemoveVolumes = r.Plan.IDs(reclaim.RemoveVolumes)
	out.Errors = append(append(append([]string{}, p.notes...), r.Warnings...), out.Errors...)
	did := &result{
		Observed: r.PlanOnly, PutOff: r.Postponed, Error: errorText(r.Err), Steps: []stepResult{},
		Filesystems:    []change{},
		PredictedBytes: r.Predicted(), FreedBytes: pointer(r.Freed()), LookedSeconds: r.Looked.Seconds(),
		TookSeconds: r.Took.Seconds(),
	}
	for i := range r.Done {
		d := &r.Done[i]
		did.Steps = append(did.Steps, stepResult{
			Action: d.Action.String(), ID: d.ID, Outcome: d.Outcome.String(), Reason: string(d.Reason),
			Why: d.Why, Error: errorText(d.Err),
			PredictedBytes: pointer(d.Bytes), FreedBytes: pointer(d.Freed), Seconds: d.Took.Seconds(),
		})
	}
	for _, f := range r.Filesystems {
		did.Filesystems = append(did.Filesystems, change{f.Path, f.Before, f.After})
	}
	out.Result = did
	return p.o.format.Encode(w, out, false)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return output.OneLine(err.Error())
}

func pointer(v stats.Opt[uint64]) *uint64 {
	if !v.OK {
		return nil
	}
	return &v.V
}
