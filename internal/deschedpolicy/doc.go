// Package deschedpolicy reads the descheduler's policies: v1alpha2 strictly, with the line of what is wrong, and v1alpha1 to turn it into
// v1alpha2.
//
//	decode.go  Decode: a policy of its file
//	strict.go  which fields and values a type of the API takes
//	migrate.go Migrate: v1alpha1 into v1alpha2
package deschedpolicy
