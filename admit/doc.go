// Package admit will decide which new pods a node under pressure takes. It will be pure code over a stats.Summary. It is
// empty so far.
package admit
