package records

import "jettison/api"

// These names are api's. They stand here only until state.go and the agent name them there.
type (
	Record  = api.Record
	Stamp   = api.Stamp
	Reading = api.Reading
	Step    = api.Step
	Squeeze = api.Squeeze
	Outcome = api.Outcome
)

// Likewise.
const (
	Running   = api.OutcomeRunning
	Back      = api.OutcomeBack
	NotBack   = api.OutcomeNotBack
	Undying   = api.OutcomeUndying
	Abandoned = api.OutcomeAbandoned
)
