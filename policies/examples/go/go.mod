module example.com/policy

go 1.24
