// Package policyfile reads the descheduler's policies: v1alpha2 strictly, with the line of what is
// wrong, and v1alpha1 to turn it into v1alpha2.
//
//	decode.go  Decode: a policy of its file
//	strict.go  checked: what the types of a policy take beyond strict.Checker
//	migrate.go Migrate: v1alpha1 into v1alpha2
package policyfile
