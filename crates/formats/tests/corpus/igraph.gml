Creator "igraph"
Version 1
graph
[
  directed 0
  node
  [
    id 0
    latitude 46.95
    longitude 7.45
    color "red"
    name "Bern"
  ]
  node
  [
    id 1
    latitude 46.2
    longitude 6.15
    color "red"
    name "Genf"
  ]
  node
  [
    id 2
    latitude 46.85
    longitude 9.53
    color "red"
    name "Chur"
  ]
  node
  [
    id 3
    latitude 47.56
    longitude 7.59
    color "red"
    name "Basel"
  ]
  node
  [
    id 4
    latitude -23.55
    longitude -46.63
    color "red"
    name "São"
  ]
  edge
  [
    source 1
    target 0
    weight 3
    capacity 100
    delay 0.7
    fid 7
  ]
  edge
  [
    source 2
    target 0
    weight 2.5
    capacity 40
    delay 1.2
    fid 7
  ]
  edge
  [
    source 3
    target 0
    weight 1
    capacity 400
    delay 0.5
    fid 7
  ]
  edge
  [
    source 4
    target 1
    weight 20
    capacity 2.5
    delay 48
    fid 7
  ]
  edge
  [
    source 3
    target 2
    weight 7
    capacity 10
    delay 0.9
    fid 7
  ]
]
