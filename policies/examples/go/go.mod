module example.com/team-naming

go 1.24
