// Package admit decides which new pods a node under pressure takes. It is pure: it takes plain values and returns a Result.
//
//	pressure.go  UnderPressure: what a node's conditions say of a pod, and whether one that runs nowhere yet is BestEffort
package admit
